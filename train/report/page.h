#pragma once
// HTML page frame of reports: one file without scripts or external references.

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
  std::string facts{};               // HTML after the lead
  std::string top{};                 // HTML before the sections
  std::vector<std::string> notes{};  // plain text on unreadable inputs
};

// Page with the non-empty sections.
[[nodiscard]] std::string render_page(const PageHead& head, std::vector<PageSection> sections);

// True if a file starts like a report page.
[[nodiscard]] bool is_report(const std::filesystem::path& file);

}  // namespace quench
