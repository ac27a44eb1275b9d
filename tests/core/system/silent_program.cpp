// A C++ program that uses the library without a log: silent_program FILE [logging]   Reads the header of a safetensors
// file, which may raise a warning; with "logging" after init_logging().

#include "core/safetensors/safetensors.h"
#include "core/system/log.h"

int main(int count, char** arguments) {
  if (count > 2) quench::init_logging();
  const quench::SafetensorsReader reader(arguments[1]);
  QUENCH_LOG_ERROR("{} tensors", reader.header().entries.size());
  return reader.header().warnings.empty() ? 1 : 0;
}
