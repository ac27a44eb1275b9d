#pragma once
// Checks of a report's markup.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace quench::testing {

inline std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

// Fails unless every tag is closed in order; returns the number of elements. The page is also valid as XML but for
// its void elements.
inline std::size_t check_tags(const std::string& html) {
  std::vector<std::string> open;
  std::size_t elements = 0;
  for (std::size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at + 1)) {
    const std::size_t end = html.find('>', at);
    if (end == std::string::npos) {
      ADD_FAILURE() << "a tag is not closed: " << html.substr(at, 80);
      return elements;
    }
    std::string tag = html.substr(at + 1, end - at - 1);
    if (tag[0] == '!') continue;
    const bool closing = tag[0] == '/';
    if (closing) tag.erase(0, 1);
    const std::string name = tag.substr(0, tag.find_first_of(" /\n"));
    if (closing) {
      if (open.empty() || open.back() != name) {
        ADD_FAILURE() << "</" << name << "> closes " << (open.empty() ? "nothing" : open.back());
        return elements;
      }
      open.pop_back();
    } else {
      ++elements;
      if (tag.back() != '/' && name != "meta" && name != "input") open.push_back(name);
    }
  }
  EXPECT_TRUE(open.empty()) << open.back() << " is left open";
  return elements;
}

// Nothing in the page may load, run or point outside.
inline void check_self_contained(const std::string& html) {
  for (const char* forbidden : {"<script", "<img", "<link", "<iframe", "<object", "http://", "https://", "url(",
                                "@import", " src=", "javascript:", " onload", " onclick"})
    EXPECT_THAT(html, ::testing::Not(::testing::HasSubstr(forbidden)));
  EXPECT_EQ(count_of(html, "href="), count_of(html, "href=\"#"));
}

}  // namespace quench::testing
