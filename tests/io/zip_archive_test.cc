#include "io/zip_archive.h"

#include "io/io_testing.h"

namespace adder {
namespace {

using namespace adder::testing;

ZipArchive parse(std::string_view image) {
  return ZipArchive::parse(as_bytes(image), "a.zip");
}

std::string content(const ZipArchive& zip, std::string_view name) {
  const ZipArchive::Entry* entry = zip.find(name);
  if (entry == nullptr) return "(absent)";
  return {reinterpret_cast<const char*>(entry->data.data()), entry->data.size()};
}

TEST(ZipArchive, Crc32) {
  EXPECT_EQ(crc32(as_bytes("123456789")), 0xcbf43926u);
  EXPECT_EQ(crc32({}), 0u);
}

TEST(ZipArchive, ReadsStoredEntries) {
  const std::string image = make_zip({{.name = "r/a", .data = "one"},
                                      {.name = "r/b", .data = "", .padding = 20},
                                      {.name = "r/c", .data = "three", .sizes_follow = true}});
  const ZipArchive zip = parse(image);
  EXPECT_EQ(zip.entries().size(), 3u);
  EXPECT_EQ(content(zip, "r/a"), "one");
  EXPECT_EQ(content(zip, "r/b"), "");
  EXPECT_EQ(content(zip, "r/c"), "three");
  EXPECT_EQ(zip.find("r/c")->crc, crc32(as_bytes("three")));
  EXPECT_EQ(zip.find("r"), nullptr);
  EXPECT_TRUE(parse(make_zip({})).entries().empty());
}

TEST(ZipArchive, ReadsZip64) {
  const std::vector<ZipEntry> entries = {{.name = "a", .data = "one", .zip64 = true, .padding = 9},
                                         {.name = "b", .data = "two"}};
  for (const bool zip64_end : {false, true}) {
    const std::string image = make_zip(entries, zip64_end);
    EXPECT_EQ(content(parse(image), "a"), "one");
    EXPECT_EQ(content(parse(image), "b"), "two");
  }
}

TEST(ZipArchive, ReadsACommentBehindTheEnd) {
  std::string image = make_zip({{.name = "a", .data = "one"}});
  image[image.size() - 2] = 26;
  image += "PK\x05\x06 looks like an end..";
  image.resize(make_zip({{.name = "a", .data = "one"}}).size() + 26, '.');
  EXPECT_EQ(content(parse(image), "a"), "one");
}

TEST(ZipArchive, RefusesContradictions) {
  const auto refuse = [](ZipEntry entry, std::string_view part, ErrorCode code) {
    entry.name = "x";
    entry.data = "data";
    expect_error([&] { parse(make_zip({{.name = "first", .data = "1"}, entry})); }, code, part);
  };
  const ErrorCode bad = ErrorCode::kBadInput, unsupported = ErrorCode::kUnsupported;
  refuse({.method = 8}, "entry 'x': expected a stored entry, got compression method 8",
         unsupported);
  refuse({.flags = 1}, "entry 'x': encrypted", unsupported);
  refuse({.local_size_delta = 1}, "local header contradicts", bad);
  refuse({.central_size_delta = -1}, "local header contradicts", bad);
  refuse({.zip64 = true, .local_size_delta = 1}, "local header contradicts", bad);
  refuse({.local_name = "y"}, "local header contradicts", bad);
  refuse({.sizes_follow = true, .central_size_delta = 1}, "run into the zip directory", bad);
  refuse({.sizes_follow = true, .central_size_delta = 1 << 30}, "run into the zip directory", bad);
  refuse({.zip64 = true, .central_size_delta = INT64_MIN, .local_size_delta = INT64_MIN},
         "run into the zip directory", bad);
  refuse({.zip64 = true, .central_size_delta = -5, .local_size_delta = -5},
         "run into the zip directory", bad);  // 2^64 - 1 bytes
}

TEST(ZipArchive, RefusesDuplicatesAndOverlap) {
  expect_bad_input(
      [] {
        parse(make_zip({{.name = "a", .data = "1"}, {.name = "a", .data = "2"}}));
      },
      "entry 'a': appears twice");
  // The first entry's data holds the second entry, header and all.
  const std::string inner = make_zip({{.name = "b", .data = "2"}});
  std::string image =
      make_zip({{.name = "a", .data = inner.substr(0, 32)}, {.name = "b", .data = "2"}});
  const size_t directory = image.find("PK\x01\x02");
  const size_t second = image.find("PK\x01\x02", directory + 1);
  const size_t inner_at = 30 + 1;
  image[second + 42] = static_cast<char>(inner_at);  // where b's local header is said to be
  expect_bad_input([&] { parse(image); }, "zip entries overlap");
}

TEST(ZipArchive, RefusesDamagedEndRecords) {
  const std::string image = make_zip({{.name = "a", .data = "one"}});
  const size_t end = image.size() - 22;
  const auto with = [&](size_t at, uint64_t value, size_t count) {
    std::string copy = image;
    std::string field;
    put(field, value, count);
    copy.replace(end + at, count, field);
    return copy;
  };
  expect_bad_input([&] { parse(with(0, 0, 4)); }, "no zip directory at its end");
  expect_bad_input([&] { parse(with(20, 1, 2)); }, "no zip directory at its end");
  expect_error([&] { parse(with(4, 1, 2)); }, ErrorCode::kUnsupported, "in several parts");
  expect_error([&] { parse(with(8, 2, 2)); }, ErrorCode::kUnsupported, "in several parts");
  expect_bad_input([&] { parse(with(8, 0x00020002, 4)); }, "cannot hold 2 entries");
  expect_bad_input([&] { parse(with(8, 0, 4)); }, "bytes left over in the zip directory");
  expect_bad_input([&] { parse(with(12, 0xfffffff0, 4)); }, "lies outside the file");
  expect_bad_input([&] { parse(with(16, 0xfffffff0, 4)); }, "lies outside the file");
  expect_bad_input([&] { parse(with(16, 0, 4)); }, "damaged zip directory");
  expect_bad_input([] { parse(""); }, "no zip directory at its end");
}

TEST(ZipArchive, RefusesDamagedZip64EndRecords) {
  const std::string image = make_zip({{.name = "a", .data = "one"}}, true);
  const size_t end64 = image.find("PK\x06\x06"), locator = image.find("PK\x06\x07");
  const auto with = [&](size_t at, uint64_t value, size_t count) {
    std::string copy = image;
    std::string field;
    put(field, value, count);
    copy.replace(at, count, field);
    return copy;
  };
  EXPECT_EQ(content(parse(image), "a"), "one");
  expect_bad_input([&] { parse(with(locator + 8, ~uint64_t{0}, 8)); }, "outside the file");
  expect_bad_input([&] { parse(with(locator + 8, 0, 8)); }, "no zip64 end record");
  expect_error([&] { parse(with(locator + 16, 2, 4)); }, ErrorCode::kUnsupported, "several parts");
  expect_error([&] { parse(with(end64 + 24, 2, 8)); }, ErrorCode::kUnsupported, "several parts");
  expect_bad_input([&] { parse(with(end64 + 40, ~uint64_t{0}, 8)); }, "outside the file");
  expect_bad_input([&] { parse(with(end64 + 48, ~uint64_t{0}, 8)); }, "outside the file");
  std::string count = image;
  for (const size_t at : {end64 + 24, end64 + 32}) count.replace(at, 8, std::string(8, '\x7f'));
  expect_bad_input([&] { parse(count); }, "cannot hold");
}

TEST(ZipArchive, SurvivesTruncationAndEveryChangedByte) {
  const std::string image = make_zip({{.name = "a", .data = "one", .zip64 = true, .padding = 8},
                                      {.name = "b", .data = "two", .sizes_follow = true}},
                                     true);
  for (size_t size = 0; size < image.size(); ++size) {
    EXPECT_THROW(parse(std::string_view(image).substr(0, size)), Error) << size;
  }
  for (size_t i = 0; i < image.size(); ++i) {
    for (const int delta : {1, 0x80, 0xff}) {
      std::string copy = image;
      copy[i] = static_cast<char>(copy[i] ^ delta);
      expect_contained([&] { parse(copy); });
    }
  }
}

}  // namespace
}  // namespace adder
