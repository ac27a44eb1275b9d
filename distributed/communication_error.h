#pragma once
// Errors of communication between ranks.

#include "core/system/check.h"

namespace quench::distributed {

// Failed operation: another rank, or its connection, is lost.
class CommunicationError : public Error {
 public:
  explicit CommunicationError(const std::string& message) : Error(ErrorCode::failed, message) {}
};

// Timeout of a collective. The program exits with kTimeoutStatus.
class CollectiveTimeout : public CommunicationError {
 public:
  using CommunicationError::CommunicationError;
};
inline constexpr int kTimeoutStatus = 75;

// Error of another rank, with its code.
class RelayedError : public Error {
 public:
  using Error::Error;
};

enum class AbortCause {
  lost,  // rank or connection lost
  late,  // timeout
};

[[noreturn]] inline void throw_communication_error(AbortCause cause, const std::string& message) {
  if (cause == AbortCause::late) throw CollectiveTimeout(message);
  throw CommunicationError(message);
}

}  // namespace quench::distributed
