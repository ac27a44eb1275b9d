#pragma once
// Process that kills the launcher's remaining workers when the launcher's end of a pipe closes (PR_SET_PDEATHSIG covers
// direct children only).

#include <sys/types.h>

#include "distributed/store/socket.h"

namespace quench::distributed {

class OrphanReaper {
 public:
  // In its own session. Throws failed.
  OrphanReaper();
  ~OrphanReaper();
  OrphanReaper(const OrphanReaper&) = delete;
  OrphanReaper& operator=(const OrphanReaper&) = delete;

  void watch(pid_t group) noexcept { tell(group); }
  void forget(pid_t group) noexcept { tell(-group); }

 private:
  void tell(pid_t word) noexcept;

  Socket pipe_;
  pid_t process_ = -1;
};

}  // namespace quench::distributed
