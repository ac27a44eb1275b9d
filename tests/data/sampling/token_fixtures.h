#pragma once
// Writers of the token formats of other programs, byte by byte from their documentation, and helpers to look at errors.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "core/system/check.h"
#include "data/formats/token_source.h"
#include "tests/testing.h"

namespace quench::testing {

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

template <class T>
std::string bytes_of(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

template <class T>
std::vector<T> iota(std::size_t count, T first = 0) {
  std::vector<T> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

// llm.c: magic, version and count can be set wrong on purpose.
template <class T>
std::string llmc_bytes(const std::vector<T>& tokens, std::int32_t magic, std::int32_t version, std::int32_t count) {
  std::vector<std::int32_t> header(256, 0);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  return bytes_of(header) + bytes_of(tokens);
}
inline std::string llmc_bytes(const std::vector<std::uint16_t>& tokens) {
  return llmc_bytes(tokens, 20240520, 1, static_cast<std::int32_t>(tokens.size()));
}
inline std::string llmc_bytes(const std::vector<std::uint32_t>& tokens) {
  return llmc_bytes(tokens, 20240801, 7, static_cast<std::int32_t>(tokens.size()));
}

// BIN.TOK: a header of '*' with the fields that the writer of that version sets.
inline std::string llmq_header(const std::vector<std::int32_t>& fields) {
  std::string header(1023, '*');
  header += '\n';
  header.replace(0, 8, "BIN.TOK\n");
  header.replace(8, fields.size() * 4, bytes_of(fields));
  return header;
}

// Least significant bit first, as numpy.packbits(bitorder="little").
inline std::string packed_bits(const std::vector<int>& bits) {
  std::string bytes((bits.size() + 7) / 8, '\0');
  for (std::size_t i = 0; i < bits.size(); ++i)
    if (bits[i] != 0) bytes[i / 8] = static_cast<char>(bytes[i / 8] | (1 << (i % 8)));
  return bytes;
}

struct MegatronIndex {
  std::uint8_t code = 8;
  std::vector<std::int32_t> lengths;
  std::vector<std::int64_t> offsets;
  std::vector<std::int64_t> bounds;
  std::uint64_t version = 1;

  // The index that Megatron's builder writes for these sequence lengths and bounds.
  static MegatronIndex make(std::uint8_t code, std::int64_t width, const std::vector<std::int32_t>& lengths,
                            const std::vector<std::int64_t>& bounds) {
    MegatronIndex index{code, lengths, {}, bounds, 1};
    std::int64_t offset = 0;
    for (const std::int32_t length : lengths) {
      index.offsets.push_back(offset);
      offset += length * width;
    }
    return index;
  }

  [[nodiscard]] std::string bytes() const {
    return std::string("MMIDIDX\0\0", 9) + bytes_of(version) + bytes_of(code) +
           bytes_of(static_cast<std::uint64_t>(lengths.size())) + bytes_of(static_cast<std::uint64_t>(bounds.size())) +
           bytes_of(lengths) + bytes_of(offsets) + bytes_of(bounds);
  }
};

// An .npy file whose header text is given; padded as NumPy does.
inline std::string npy_bytes(std::string header, const std::string& body, std::uint8_t major = 1) {
  const std::size_t prefix = major == 1 ? 10 : 12;
  while ((prefix + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  std::string text = "\x93NUMPY";
  text += static_cast<char>(major);
  text += '\0';
  text += major == 1 ? bytes_of(static_cast<std::uint16_t>(header.size()))
                     : bytes_of(static_cast<std::uint32_t>(header.size()));
  return text + header + body;
}

inline std::vector<std::int32_t> read_tokens(const TokenSource& source, std::uint64_t begin, std::size_t count) {
  std::vector<std::int32_t> tokens(count);
  source.read(begin, tokens);
  return tokens;
}

inline std::vector<std::uint8_t> read_mask(const TokenSource& source, std::uint64_t begin, std::size_t count) {
  std::vector<std::uint8_t> mask(count, 7);
  source.read_target_mask(begin, mask);
  return mask;
}

inline std::vector<std::int32_t> read_all_tokens(const TokenSource& source) {
  return read_tokens(source, 0, static_cast<std::size_t>(source.size()));
}

inline std::vector<std::uint64_t> all_document_starts(const TokenSource& source) {
  const auto tokens = read_all_tokens(source);
  std::vector<std::uint64_t> starts{0};
  source.find_document_starts(0, tokens, starts);
  return starts;
}

// Runs `body`, which must throw a quench::Error of this code whose message contains every one of `parts`.
template <class Body>
void expect_error(ErrorCode code, const std::vector<std::string>& parts, Body&& body) {
  try {
    body();
    ADD_FAILURE() << "no error was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    for (const std::string& part : parts) EXPECT_THAT(error.what(), ::testing::HasSubstr(part));
  }
}

}  // namespace quench::testing
