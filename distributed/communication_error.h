#pragma once
// An operation that failed because another rank, or the way to it, is gone: an echo of what happened there.

#include "core/system/check.h"

namespace quench::distributed {

class CommunicationError : public Error {
 public:
  explicit CommunicationError(const std::string& message) : Error(ErrorCode::failed, message) {}
};

}  // namespace quench::distributed
