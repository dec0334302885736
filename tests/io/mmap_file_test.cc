#include "io/mmap_file.h"

#include <sys/stat.h>

#include "io/io_testing.h"

namespace adder {
namespace {

using namespace adder::testing;

TEST(MappedFile, ShowsTheBytesAndOutlivesTheName) {
  const TempDir dir;
  const std::string path = dir.write("a", "hello");
  const auto file = MappedFile::open(path);
  std::filesystem::remove(path);
  ASSERT_EQ(file->bytes().size(), 5u);
  EXPECT_EQ(std::to_integer<char>(file->bytes()[4]), 'o');
}

TEST(MappedFile, FollowsSymbolicLinks) {
  const TempDir dir;
  std::filesystem::create_symlink(dir.write("target", "x"), dir.path("link"));
  EXPECT_EQ(MappedFile::open(dir.path("link"))->bytes().size(), 1u);
}

TEST(MappedFile, RefusesWhatIsNoFileOfData) {
  const TempDir dir;
  expect_bad_input([&] { MappedFile::open(dir.path()); }, "expected a file, got a directory");
  expect_bad_input([&] { MappedFile::open(dir.write("empty", "")); }, "the file is empty");
  ASSERT_EQ(::mkfifo(dir.path("fifo").c_str(), 0600), 0);
  expect_bad_input([&] { MappedFile::open(dir.path("fifo")); }, "got a FIFO");  // must not block
  expect_bad_input([&] { MappedFile::open("/dev/null"); }, "got a device");
  expect_error([&] { MappedFile::open(dir.path("absent")); }, ErrorCode::kIo,
               "absent: cannot open: No such file");
}

}  // namespace
}  // namespace adder
