#pragma once
// Wait policy of OpenMP threads between parallel loops.

namespace quench {

// Call first in main. OpenMP threads spin for milliseconds by default, which degrades all programs on shared cores. The
// runtime reads its settings at load time, so the program re-executes itself with a short spin (figures:
// docs/lab/2026-11-20-performance.md). User settings of OMP_WAIT_POLICY or GOMP_SPINCOUNT are kept; child processes see
// the user's environment.
void choose_thread_waiting(char** arguments);

}  // namespace quench
