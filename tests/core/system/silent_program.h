#pragma once
// The program silent_program.cpp.

#include <string>

namespace quench::testing {

std::string silent_program_path();  // defined in tests/main.cpp

}  // namespace quench::testing
