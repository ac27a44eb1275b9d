#pragma once
// Reader of the flat XML that S3 answers with: elements by name, without attributes and nesting of the same name.

#include <functional>
#include <string>
#include <string_view>

namespace quench::s3 {

// Text of the first <name>...</name>, entities decoded; empty: none.
[[nodiscard]] std::string xml_text(std::string_view xml, std::string_view name);

// Content of each <name>...</name>, as it stands.
void xml_each(std::string_view xml, std::string_view name, const std::function<void(std::string_view)>& take);

// With &, <, > and quotes as entities.
[[nodiscard]] std::string xml_escaped(std::string_view text);

}  // namespace quench::s3
