#include "data/formats/npy_format.h"

#include "tests/data/sampling/token_fixtures.h"

namespace quench {
namespace {

using testing::bytes_of;
using testing::expect_error;
using testing::npy_bytes;
using testing::TempDir;
using testing::write_file;

template <class T>
void expect_reads(const std::string& descr) {
  TempDir folder;
  write_file(folder / "a.npy", npy_bytes("{'descr': '" + descr + "', 'fortran_order': False, 'shape': (3,), }",
                                         bytes_of(std::vector<T>{1, 2, 127})));
  const auto source = open_token_file(folder / "a.npy");
  EXPECT_EQ(testing::read_all_tokens(*source), (std::vector<std::int32_t>{1, 2, 127})) << descr;
}

TEST(NpyFormat, ReadsEveryIntegerType) {
  expect_reads<std::uint8_t>("|u1");
  expect_reads<std::int8_t>("|i1");
  expect_reads<std::uint16_t>("<u2");
  expect_reads<std::int16_t>("<i2");
  expect_reads<std::uint32_t>("<u4");
  expect_reads<std::int32_t>("<i4");
  expect_reads<std::uint64_t>("<u8");
  expect_reads<std::int64_t>("<i8");
}

TEST(NpyFormat, RowsOfATwoDimensionalArrayAreDocuments) {
  TempDir folder;
  for (const std::uint8_t major : std::vector<std::uint8_t>{1, 2, 3}) {
    write_file(folder / "a.npy", npy_bytes("{'descr': '<u2', 'fortran_order': False, 'shape': (3, 2), }",
                                           bytes_of(testing::iota<std::uint16_t>(6)), major));
    const auto source = open_token_file(folder / "a.npy");
    EXPECT_EQ(testing::read_all_tokens(*source), testing::iota<std::int32_t>(6));
    EXPECT_EQ(testing::all_document_starts(*source), (std::vector<std::uint64_t>{0, 2, 4}));
    std::vector<std::uint64_t> starts;
    source->find_document_starts(1, testing::read_tokens(*source, 1, 4), starts);
    EXPECT_EQ(starts, (std::vector<std::uint64_t>{2, 4}));
  }
}

TEST(NpyFormat, HeaderGrammar) {
  const auto header = parse_npy_header("{\"shape\":(4,),'fortran_order':True , 'descr':'<i4'}  \n", "x.npy");
  EXPECT_EQ(header.columns, 4u);
  EXPECT_FALSE(header.two_dimensional);
  const auto refuses = [](const std::string& text, ErrorCode code, const std::string& part) {
    expect_error(code, {"x.npy", part}, [&] { (void)parse_npy_header(text, "x.npy"); });
  };
  const std::string rest = ", 'fortran_order': False, 'shape': (3,)}";
  refuses("", ErrorCode::corrupt, "expected '{'");
  refuses("{}", ErrorCode::corrupt, "missing");
  refuses("{'descr': '<u2'" + rest + " extra", ErrorCode::corrupt, "text after");
  refuses("{'descr': __import__('os')" + rest, ErrorCode::corrupt, "expected a string");
  refuses("{'descr': '<u2', 'descr': '<u2'" + rest, ErrorCode::corrupt, "unexpected key");
  refuses("{'descr': '<u2', 'x': 1" + rest, ErrorCode::corrupt, "unexpected key");
  refuses("{'descr': '<u2', 'fortran_order': 0, 'shape': (3,)}", ErrorCode::corrupt, "True or False");
  refuses("{'descr': '<u2', 'fortran_order': False, 'shape': (-3,)}", ErrorCode::corrupt, "expected a number");
  refuses("{'descr': '<u2', 'fortran_order': False, 'shape': (99999999999999999999,)}", ErrorCode::corrupt,
          "too large");
  refuses("{'descr': '<u2', 'fortran_order': False, 'shape': (3", ErrorCode::corrupt, "expected ','");
  refuses("{'descr': '<u2", ErrorCode::corrupt, "unterminated");
  refuses("{'descr': '|O'" + rest, ErrorCode::unsupported, "'|O'");
  refuses("{'descr': '<f4'" + rest, ErrorCode::unsupported, "'<f4'");
  refuses("{'descr': '>u2'" + rest, ErrorCode::unsupported, "big-endian");
  refuses("{'descr': [('a', '<u2')]" + rest, ErrorCode::unsupported, "structured");
  refuses("{'descr': '<u2', 'fortran_order': False, 'shape': ()}", ErrorCode::unsupported, "0 dimensions");
  refuses("{'descr': '<u2', 'fortran_order': False, 'shape': (1,2,3)}", ErrorCode::unsupported, "3 dimensions");
  refuses("{'descr': '<u2', 'fortran_order': True, 'shape': (2,3)}", ErrorCode::unsupported, "Fortran");
}

TEST(NpyFormat, RejectsSizesThatDoNotMatch) {
  TempDir folder;
  const auto path = folder / "bad.npy";
  const std::string body = bytes_of(testing::iota<std::uint16_t>(6));
  const auto header = [](const std::string& shape) {
    return "{'descr': '<u2', 'fortran_order': False, 'shape': " + shape + ", }";
  };
  const auto refuses = [&](const std::string& bytes, ErrorCode code, const std::string& part) {
    write_file(path, bytes);
    expect_error(code, {"bad.npy", part},
                 [&] { (void)open_token_file(path, {.format = token_formats().find("npy")}); });
  };
  refuses("\x93NUMPY", ErrorCode::corrupt, "6 bytes");
  refuses("\x92NUMPY\x01" + std::string(20, '\0'), ErrorCode::corrupt, "NUMPY");
  refuses("\x93NUMPY\x04" + std::string(20, '\0'), ErrorCode::unsupported, "version 4");
  refuses(std::string("\x93NUMPY\x02\0\xff\xff\xff\xff", 12), ErrorCode::corrupt, "header of 4294967295 bytes");
  refuses(npy_bytes(header("(5,)"), body), ErrorCode::corrupt, "do not match");
  refuses(npy_bytes(header("(7,)"), body), ErrorCode::corrupt, "do not match");
  refuses(npy_bytes(header("(6,)"), body + "x"), ErrorCode::corrupt, "do not match");
  refuses(npy_bytes(header("(0,)"), ""), ErrorCode::corrupt, "no tokens");
  refuses(npy_bytes(header("(0, 3)"), ""), ErrorCode::corrupt, "no tokens");
  // Products that wrap around 2^64.
  refuses(npy_bytes(header("(4294967296, 4294967296)"), ""), ErrorCode::corrupt, "do not match");
  refuses(npy_bytes(header("(9223372036854775809, 2)"), body.substr(0, 4)), ErrorCode::corrupt, "do not match");
}

}  // namespace
}  // namespace quench
