// A server's list of files: whatever it says, it is refused with an Error or every name chosen from
// it stays inside the target directory.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/error.h"
#include "io/hub_listing.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const adder::RepoListing listing = adder::parse_listing(text, "fuzz");
    for (const auto& [name, file] : listing.files) {
      if (!adder::is_inside_path(name) || file.size.value_or(0) < 0) std::abort();
      if (!file.sha256.empty() && !adder::is_hex(file.sha256, 64)) std::abort();
    }
    const adder::Selection selection = adder::select_files(listing, {}, "fuzz");
    for (const std::string& name : selection.files) {
      if (listing.files.count(name) == 0 || adder::is_reserved(name)) std::abort();
    }
  } catch (const adder::Error&) {
  }
  adder::wants_neox_tokenizer(text);
  return 0;
}
