#pragma once
// An operation that failed because another rank, or the way to it, is gone: an echo of what happened there.

#include "core/system/check.h"

namespace quench::distributed {

class CommunicationError : public Error {
 public:
  explicit CommunicationError(const std::string& message) : Error(ErrorCode::failed, message) {}
};

// Another rank has not come to an operation in time: it hangs, or is much too slow. The program's exit status is
// kTimeoutStatus then.
class CollectiveTimeout : public CommunicationError {
 public:
  using CommunicationError::CommunicationError;
};
inline constexpr int kTimeoutStatus = 75;

}  // namespace quench::distributed
