#pragma once
// Errors caused by a failure of another rank.

#include "core/system/check.h"

namespace quench::distributed {

// Failed operation: another rank, or the connection to it, is lost.
class CommunicationError : public Error {
 public:
  explicit CommunicationError(const std::string& message) : Error(ErrorCode::failed, message) {}
};

// Timeout of a collective: another rank hangs or is too slow. The program then exits with kTimeoutStatus.
class CollectiveTimeout : public CommunicationError {
 public:
  using CommunicationError::CommunicationError;
};
inline constexpr int kTimeoutStatus = 75;

// Error of another rank, with its code; that rank reports it as its own.
class RelayedError : public Error {
 public:
  using Error::Error;
};

enum class AbortCause {
  lost,  // a rank or the connection to it is lost
  late,  // timeout of an operation
};

[[noreturn]] inline void throw_communication_error(AbortCause cause, const std::string& message) {
  if (cause == AbortCause::late) throw CollectiveTimeout(message);
  throw CommunicationError(message);
}

}  // namespace quench::distributed
