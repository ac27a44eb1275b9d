#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "core/json/json.h"
#include "core/json/json_sax.h"
#include "core/safetensors/safetensors.h"
#include "core/safetensors/safetensors_limits.h"
#include "core/system/file_type.h"

namespace quench {
namespace {

template <class... Args>
[[noreturn]] void fail(SafetensorsFault fault, std::string_view source, fmt::format_string<Args...> format,
                       Args&&... args) {
  throw SafetensorsError(fault, fmt::format("{}: ", source) + fmt::format(format, std::forward<Args>(args)...));
}

std::string_view as_text(std::span<const std::uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::uint64_t read_length(std::span<const std::uint8_t> head) {
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | head[static_cast<std::size_t>(i)];
  return length;
}

// wrong_file_type if the probe is of another kind, else the given fault.
template <class... Args>
[[noreturn]] void fail_recognised(SafetensorsFault fault, std::string_view probe, std::string_view source,
                                  fmt::format_string<Args...> format, Args&&... args) {
  if (const std::string_view kind = recognise_file(probe); !kind.empty())
    fail(SafetensorsFault::wrong_file_type, source, "not a safetensors file: this is {}", kind);
  fail(fault, source, format, std::forward<Args>(args)...);
}

// Rejects any other structure.
class HeaderReader final : public JsonSax {
 public:
  HeaderReader(std::string_view source, SafetensorsHeader& header) : source_(source), header_(header) {}

  bool null() override { return scalar("null"); }
  bool boolean(bool) override { return scalar("a bool"); }
  bool number_integer(number_integer_t) override { return scalar("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return scalar("a number that is no 64-bit integer"); }
  bool binary(binary_t&) override { return scalar("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (state_ == State::dimensions) {
      if (entry().shape.rank() == Shape::kMaxRank)
        fail(SafetensorsFault::invalid_shape, source_, "tensor {} has more than {} dimensions", in_quotes(entry().name),
             Shape::kMaxRank);
      if (value > kSafetensorsMaxDimension)
        fail(SafetensorsFault::size_overflow, source_, "tensor {} has a dimension of {}; at most 2^48 - 1 is possible",
             in_quotes(entry().name), value);
      entry().shape.push_back(static_cast<std::int64_t>(value));
      return true;
    }
    if (state_ == State::offsets && offset_count_ < 2) {
      (offset_count_ == 0 ? entry().begin : entry().end) = value;
      ++offset_count_;
      return true;
    }
    return scalar(state_ == State::offsets ? "a third offset" : "a number");
  }

  bool string(string_t& value) override {
    if (state_ == State::dtype) {
      const SafetensorsDType* row = find_safetensors_dtype(value);
      if (row == nullptr)
        fail(SafetensorsFault::unknown_dtype, source_, "tensor {} has the unknown dtype {}", in_quotes(entry().name),
             in_quotes(value));
      entry().dtype_name = row->name;
      entry().dtype = row->dtype;
      state_ = State::fields;
      return true;
    }
    if (state_ == State::metadata) {
      if (header_.metadata.size() == kSafetensorsMaxMetadata)
        fail(SafetensorsFault::invalid_metadata, source_, "more than {} keys in __metadata__", kSafetensorsMaxMetadata);
      if (!header_.metadata.try_emplace(key_, std::move(value)).second)
        fail(SafetensorsFault::invalid_metadata, source_, "the key {} occurs twice in __metadata__", in_quotes(key_));
      return true;
    }
    return scalar("a string");
  }

  bool start_object(std::size_t) override {
    switch (state_) {
      case State::start: state_ = State::names; return true;
      case State::tensor: state_ = State::fields; return true;
      case State::metadata_start: state_ = State::metadata; return true;
      default: return nested("an object");
    }
  }

  bool start_array(std::size_t) override {
    if (state_ == State::shape_start) {
      state_ = State::dimensions;
    } else if (state_ == State::offsets_start) {
      state_ = State::offsets;
    } else {
      nested("an array");
    }
    return true;
  }

  bool end_object() override {
    if (state_ == State::unknown) return leave_unknown();
    if (state_ == State::fields) {
      if (!seen_dtype_ || !seen_shape_ || !seen_offsets_)
        fail(SafetensorsFault::invalid_json, source_, "tensor {} has no \"{}\"", in_quotes(entry().name),
             !seen_dtype_   ? "dtype"
             : !seen_shape_ ? "shape"
                            : "data_offsets");
      state_ = State::names;
    } else if (state_ == State::metadata) {
      state_ = State::names;
    } else {
      state_ = State::start;
    }
    return true;
  }

  bool end_array() override {
    if (state_ == State::unknown) return leave_unknown();
    if (state_ == State::offsets && offset_count_ != 2)
      fail(SafetensorsFault::invalid_json, source_, "tensor {} has {} data_offsets; two are needed",
           in_quotes(entry().name), offset_count_);
    state_ = State::fields;
    return true;
  }

  bool key(string_t& value) override {
    if (state_ == State::names) {
      start_name(std::move(value));
    } else if (state_ == State::fields) {
      start_field(value);
    } else {
      key_ = std::move(value);
    }
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    fail(SafetensorsFault::invalid_json, source_, "byte {} of the header: {}", position,
         json_error_reason(error.what()));
  }

 private:
  enum class State {
    start,        // outside of the object
    names,        // between members
    tensor,       // before its object
    fields,       // between its members
    dtype,        // before the value
    shape_start,  // before the array
    dimensions,   // in the array
    offsets_start,
    offsets,
    unknown,  // unknown member, nesting_ levels deep
    metadata_start,
    metadata,
  };

  [[nodiscard]] SafetensorsEntry& entry() { return header_.entries.back(); }

  void start_name(std::string name) {
    if (name == kSafetensorsMetadataKey) {
      if (seen_metadata_) fail(SafetensorsFault::duplicate_name, source_, "__metadata__ occurs twice");
      seen_metadata_ = true;
      state_ = State::metadata_start;
      return;
    }
    if (const std::string_view problem = safetensors_name_problem(name); !problem.empty())
      fail(SafetensorsFault::invalid_name, source_, "tensor name {} {}", in_quotes(name), problem);
    if (header_.entries.size() == kSafetensorsMaxTensors)
      fail(SafetensorsFault::too_many_tensors, source_, "more than {} tensors", kSafetensorsMaxTensors);
    header_.entries.emplace_back().name = std::move(name);
    seen_dtype_ = seen_shape_ = seen_offsets_ = false;
    offset_count_ = 0;
    state_ = State::tensor;
  }

  void start_field(const std::string& field) {
    const auto once = [&](bool& seen, State next) {
      if (seen)
        fail(SafetensorsFault::invalid_json, source_, "tensor {} has \"{}\" twice", in_quotes(entry().name), field);
      seen = true;
      state_ = next;
    };
    if (field == "dtype") return once(seen_dtype_, State::dtype);
    if (field == "shape") return once(seen_shape_, State::shape_start);
    if (field == "data_offsets") return once(seen_offsets_, State::offsets_start);
    if (header_.warnings.empty())
      header_.warnings.push_back(
          fmt::format("{}: tensor {} has the field {}, which the format does not know; ignored here "
                      "and wherever else it occurs",
                      source_, in_quotes(entry().name), in_quotes(field)));
    state_ = State::unknown;
    nesting_ = 0;
  }

  bool scalar(std::string_view what) {
    if (state_ != State::unknown) fail_structure(what);
    if (nesting_ == 0) state_ = State::fields;
    return true;
  }

  bool nested(std::string_view what) {
    if (state_ != State::unknown) fail_structure(what);
    // The reference implementation's limit.
    if (++nesting_ > 125) fail(SafetensorsFault::invalid_json, source_, "nested deeper than 128 levels");
    return true;
  }

  bool leave_unknown() {
    if (--nesting_ == 0) state_ = State::fields;
    return true;
  }

  [[noreturn]] void fail_structure(std::string_view got) {
    using enum SafetensorsFault;
    switch (state_) {
      case State::metadata_start: fail(invalid_metadata, source_, "__metadata__ is {}, not an object", got);
      case State::metadata:
        fail(invalid_metadata, source_, "key {} of __metadata__ is {}, not a string", in_quotes(key_), got);
      case State::tensor: fail(invalid_json, source_, "tensor {} is {}, not an object", in_quotes(entry().name), got);
      case State::dtype:
        fail(invalid_json, source_, "tensor {}: dtype is {}, not a string", in_quotes(entry().name), got);
      case State::shape_start:
        fail(invalid_json, source_, "tensor {}: shape is {}, not an array", in_quotes(entry().name), got);
      case State::offsets_start:
        fail(invalid_json, source_, "tensor {}: data_offsets is {}, not an array", in_quotes(entry().name), got);
      case State::dimensions:
        fail(invalid_json, source_, "tensor {}: shape holds {}, not a non-negative integer", in_quotes(entry().name),
             got);
      case State::offsets:
        fail(invalid_json, source_, "tensor {}: data_offsets holds {}; exactly two non-negative integers are needed",
             in_quotes(entry().name), got);
      default: fail(invalid_json, source_, "the header is {}, not an object", got);
    }
  }

  std::string_view source_;
  SafetensorsHeader& header_;
  State state_ = State::start;
  std::string key_;
  bool seen_metadata_ = false;
  bool seen_dtype_ = false;
  bool seen_shape_ = false;
  bool seen_offsets_ = false;
  int offset_count_ = 0;
  int nesting_ = 0;
};

void check_unique_names(const std::vector<SafetensorsEntry>& entries, std::string_view source) {
  std::vector<std::uint32_t> order(entries.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return entries[a].name < entries[b].name; });
  const auto twice = std::adjacent_find(order.begin(), order.end(),
                                        [&](auto a, auto b) { return entries[a].name == entries[b].name; });
  if (twice != order.end())
    fail(SafetensorsFault::duplicate_name, source, "tensor {} occurs twice", in_quotes(entries[*twice].name));
}

std::uint64_t checked_bytes(const SafetensorsEntry& entry, std::string_view source) {
  std::uint64_t bits = find_safetensors_dtype(entry.dtype_name)->bits;
  // Zero first: a product may wrap to zero.
  if (std::find(entry.shape.begin(), entry.shape.end(), 0) != entry.shape.end()) return 0;
  for (const std::int64_t dimension : entry.shape)
    if (__builtin_mul_overflow(bits, static_cast<std::uint64_t>(dimension), &bits))
      fail(SafetensorsFault::size_overflow, source, "tensor {} of shape {} has more bits than 64-bit numbers can count",
           in_quotes(entry.name), entry.shape.to_string());
  if (bits % 8 != 0)
    fail(SafetensorsFault::misaligned, source, "tensor {} of shape {} and dtype {} does not fill whole bytes",
         in_quotes(entry.name), entry.shape.to_string(), entry.dtype_name);
  return bits / 8;
}

// Every byte exactly once.
void check_layout(const SafetensorsHeader& header, std::uint64_t file_size, std::string_view source) {
  std::uint64_t position = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    if (entry.begin != position || entry.end < entry.begin)
      fail(SafetensorsFault::invalid_offset, source, "tensor {} has data_offsets [{}, {}]; it must begin at {}",
           in_quotes(entry.name), entry.begin, entry.end, position);
    const std::uint64_t expected = checked_bytes(entry, source);
    if (entry.nbytes() != expected)
      fail(SafetensorsFault::size_mismatch, source, "tensor {} of shape {} and dtype {} needs {} bytes but has {}",
           in_quotes(entry.name), entry.shape.to_string(), entry.dtype_name, expected, entry.nbytes());
    position = entry.end;
  }
  const std::uint64_t available = file_size - header.data_start;
  if (position > available)
    fail(SafetensorsFault::incomplete_buffer, source,
         "truncated: the tensors need {} bytes after the header, the file has {}; copy or download it again", position,
         available);
  if (position < available)
    fail(SafetensorsFault::incomplete_buffer, source, "{} bytes follow the last tensor; nothing may",
         available - position);
}

}  // namespace

std::uint64_t safetensors_header_length(std::span<const std::uint8_t> probe, std::uint64_t file_size,
                                        std::string_view source) {
  QUENCH_CHECK(probe.size() >= std::min<std::uint64_t>(file_size, 8),
               "safetensors_header_length: {} bytes of a file of {}", probe.size(), file_size);
  const std::string_view text = as_text(probe.first(std::min(probe.size(), kSafetensorsProbeBytes)));
  using enum SafetensorsFault;
  if (file_size == 0) fail(header_too_small, source, "the file is empty; copy or download it again");
  if (file_size < 8)
    fail_recognised(header_too_small, text, source, "{} bytes are too few for a safetensors file", file_size);
  const std::uint64_t length = read_length(probe);
  if (length > kSafetensorsMaxHeaderBytes)
    fail_recognised(header_too_large, text, source,
                    "not a safetensors file, or a damaged one: its header claims {} bytes; at most {} are allowed",
                    length, kSafetensorsMaxHeaderBytes);
  if (length > file_size - 8)
    fail_recognised(invalid_header_length, text, source, "the header claims {} bytes, but only {} follow its length",
                    length, file_size - 8);
  return length;
}

SafetensorsHeader parse_safetensors_header(std::span<const std::uint8_t> head, std::uint64_t file_size,
                                           std::string_view source) {
  const std::uint64_t length = safetensors_header_length(head, file_size, source);
  QUENCH_CHECK(head.size() >= 8 + length, "parse_safetensors_header: {} bytes of a header of {}", head.size(),
               8 + length);
  std::string_view text = as_text(head.subspan(8, length));
  using enum SafetensorsFault;
  if (!text.starts_with('{')) {
    const std::string_view probe = as_text(head.first(std::min(head.size(), kSafetensorsProbeBytes)));
    fail_recognised(invalid_start, probe, source, "the header does not start with '{{'");
  }
  if (const auto bad = find_invalid_utf8(text); bad != std::string_view::npos)
    fail(invalid_utf8, source, "byte {} of the header is not valid UTF-8", bad + 1);
  // The parser ends at NUL.
  if (const auto nul = text.find('\0'); nul != std::string_view::npos)
    fail(invalid_json, source, "byte {} of the header is NUL", nul + 1);
  // Padding may dominate; the parser copies its input.
  text = text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
  SafetensorsHeader header;
  header.data_start = 8 + length;
  HeaderReader reader(source, header);
  nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  check_unique_names(header.entries, source);
  std::sort(header.entries.begin(), header.entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  check_layout(header, file_size, source);
  return header;
}

}  // namespace quench
