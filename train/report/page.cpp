#include "train/report/page.h"

#include <fmt/format.h>

#include "core/system/output_file.h"
#include "train/report/html.h"
#include "train/report/page_style.h"

namespace quench {
namespace {

constexpr std::string_view kGenerator = "<meta name=\"generator\" content=\"Quench\">";
constexpr std::size_t kHeadBytes = 4096;

}  // namespace

std::string render_page(const PageHead& head, std::vector<PageSection> sections) {
  std::erase_if(sections, [](const PageSection& section) { return section.body.empty(); });
  const std::string title = escape_html(head.title);
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
      "{}\n<title>{} \xC2\xB7 "
      "Quench</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n<header>\n<h1>{}</h1>\n<p>{}</p>\n"
      "{}<nav>",
      kGenerator, title, page_style(), title, escape_html(head.lead), head.facts);
  for (const PageSection& section : sections) html += fmt::format("<a href=\"#{}\">{}</a>", section.id, section.title);
  html += "</nav>\n</header>\n" + head.top;
  for (const PageSection& section : sections)
    html += fmt::format("<section>\n<h2 id=\"{}\">{}</h2>\n{}</section>\n", section.id, section.title, section.body);
  if (!head.notes.empty()) {
    html += "<footer><p>Not everything in the folder could be read:</p><ul>";
    for (const std::string& note : head.notes) html += "<li>" + escape_html(shorten(note, 500)) + "</li>";
    html += "</ul></footer>\n";
  }
  return html + "</main>\n</body>\n</html>\n";
}

bool is_report(const std::filesystem::path& file) {
  return read_beginning(file, kHeadBytes).find(kGenerator) != std::string::npos;
}

}  // namespace quench
