#pragma once
// Types of options whose values are the names of a table: in --help, and as candidates of the shell completion.

#include <string>
#include <string_view>
#include <vector>

namespace quench {

inline constexpr const char* kSchemeType = "SCHEME";             // quantization schemes
inline constexpr const char* kMethodType = "METHOD";             // quantization methods
inline constexpr const char* kExportFormatType = "FORMAT";       // export formats, peft included
inline constexpr const char* kInputFormatType = "INPUT_FORMAT";  // formats of text and records, auto included
inline constexpr const char* kDataFormatType = "DATA_FORMAT";    // the same with token files

// Names of the type's table, in its order; empty for other types.
[[nodiscard]] std::vector<std::string> choices_of_type(std::string_view type);

}  // namespace quench
