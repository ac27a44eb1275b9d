#pragma once
// Errors that are echoes of what happened on another rank.

#include "core/system/check.h"

namespace quench::distributed {

// An operation that failed because another rank, or the way to it, is gone.
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

// An error of another rank, with its code: that rank reports it as its own.
class RelayedError : public Error {
 public:
  using Error::Error;
};

// Why a group gives up.
enum class AbortCause {
  lost,  // a rank has ended, or the way to it is gone
  late,  // a rank has not come to an operation in time
};

[[noreturn]] inline void throw_communication_error(AbortCause cause, const std::string& message) {
  if (cause == AbortCause::late) throw CollectiveTimeout(message);
  throw CommunicationError(message);
}

}  // namespace quench::distributed
