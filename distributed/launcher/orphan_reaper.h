#pragma once
// A small process that outlives its launcher by a moment: when the launcher's end of a pipe closes, however that came,
// it kills what the launcher has started and not reported as ended. (PR_SET_PDEATHSIG reaches the workers themselves,
// not what they have started.)

#include <sys/types.h>

#include "distributed/store/socket.h"

namespace quench::distributed {

class OrphanReaper {
 public:
  // Starts the process, in a session of its own. Throws failed.
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
