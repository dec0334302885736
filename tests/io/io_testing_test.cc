// The zip writer of the tests, and the check that it writes what zip readers expect.
#include "io/io_testing.h"

namespace adder::testing {

uint32_t crc32_bitwise(std::string_view data) {
  uint32_t crc = 0xffffffff;
  for (const char c : data) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xedb88320u : 0u);
  }
  return ~crc;
}

std::string make_zip(const std::vector<ZipEntry>& entries, bool zip64_end) {
  constexpr uint64_t kSee64 = 0xffffffff;
  std::string out, directory;
  for (const ZipEntry& entry : entries) {
    const uint64_t offset = out.size();
    const uint64_t size = entry.data.size();
    const uint64_t local_size = size + static_cast<uint64_t>(entry.local_size_delta);
    const uint64_t central_size = size + static_cast<uint64_t>(entry.central_size_delta);
    const uint32_t crc = crc32_bitwise(entry.data) ^ entry.crc_xor;
    const auto flags = static_cast<uint16_t>(entry.flags | (entry.sizes_follow ? 8 : 0));
    const std::string& local_name = entry.local_name.empty() ? entry.name : entry.local_name;

    std::string local_extra;
    if (entry.zip64) {
      put(local_extra, 1, 2);
      put(local_extra, 16, 2);
      put(local_extra, local_size, 8);
      put(local_extra, local_size, 8);
    }
    if (entry.padding >= 4) {
      local_extra += "FB";
      put(local_extra, entry.padding - 4, 2);
      local_extra.append(entry.padding - 4, 'Z');
    }
    put(out, 0x04034b50, 4);
    put(out, 0, 2);
    put(out, flags, 2);
    put(out, entry.method, 2);
    put(out, 0, 4);
    put(out, entry.sizes_follow ? 0 : crc, 4);
    for (int i = 0; i < 2; ++i) {
      put(out, entry.sizes_follow ? 0 : entry.zip64 ? kSee64 : local_size, 4);
    }
    put(out, local_name.size(), 2);
    put(out, local_extra.size(), 2);
    out += local_name + local_extra + entry.data;

    std::string central_extra;
    if (entry.zip64) {
      put(central_extra, 1, 2);
      put(central_extra, 24, 2);
      put(central_extra, central_size, 8);
      put(central_extra, central_size, 8);
      put(central_extra, offset, 8);
    }
    put(directory, 0x02014b50, 4);
    put(directory, 0, 4);
    put(directory, flags, 2);
    put(directory, entry.method, 2);
    put(directory, 0, 4);
    put(directory, crc, 4);
    for (int i = 0; i < 2; ++i) put(directory, entry.zip64 ? kSee64 : central_size, 4);
    put(directory, entry.name.size(), 2);
    put(directory, central_extra.size(), 2);
    put(directory, 0, 2 + 2 + 2 + 4);
    put(directory, entry.zip64 ? kSee64 : offset, 4);
    directory += entry.name + central_extra;
  }
  const uint64_t directory_offset = out.size();
  out += directory;
  if (zip64_end) {
    const uint64_t end64 = out.size();
    put(out, 0x06064b50, 4);
    put(out, 44, 8);
    put(out, 45, 2);
    put(out, 45, 2);
    put(out, 0, 8);
    put(out, entries.size(), 8);
    put(out, entries.size(), 8);
    put(out, directory.size(), 8);
    put(out, directory_offset, 8);
    put(out, 0x07064b50, 4);
    put(out, 0, 4);
    put(out, end64, 8);
    put(out, 1, 4);
  }
  put(out, 0x06054b50, 4);
  put(out, 0, 4);
  put(out, zip64_end ? 0xffff : entries.size(), 2);
  put(out, zip64_end ? 0xffff : entries.size(), 2);
  put(out, zip64_end ? kSee64 : directory.size(), 4);
  put(out, zip64_end ? kSee64 : directory_offset, 4);
  put(out, 0, 2);
  return out;
}

namespace {

TEST(IoTesting, CrcIsTheOneOfZip) {
  EXPECT_EQ(crc32_bitwise("123456789"), 0xcbf43926u);  // the check value of CRC-32
}

}  // namespace
}  // namespace adder::testing
