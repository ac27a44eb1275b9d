#include "export/formats/export_mark.h"

namespace quench {

std::map<std::string, std::string> export_metadata() {
  return {{"format", "pt"}, {kWriterKey, kWriterName}};
}

}  // namespace quench
