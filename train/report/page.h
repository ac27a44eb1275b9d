#pragma once
// The frame of an HTML page of the report: one file without scripts or outside references.

#include <filesystem>
#include <string>
#include <vector>

namespace quench {

struct PageSection {
  std::string id;     // letters
  std::string title;  // plain text
  std::string body;   // HTML
};

struct PageHead {
  std::string title;  // plain text, like `lead`
  std::string lead;
  std::string facts{};               // HTML below it
  std::string top{};                 // HTML before the sections
  std::vector<std::string> notes{};  // what could not be read; plain text
};

// The page with the sections that have a body.
[[nodiscard]] std::string render_page(const PageHead& head, std::vector<PageSection> sections);

// Whether a file begins like such a page.
[[nodiscard]] bool is_report(const std::filesystem::path& file);

}  // namespace quench
