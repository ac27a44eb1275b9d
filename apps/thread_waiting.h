#pragma once
// How the threads of a parallel loop wait for the next one.

namespace quench {

// Call first in main. By default OpenMP's threads spin for milliseconds, which is cheap alone and ruins every program
// on a machine whose cores are shared. The runtime reads its settings when it is loaded, before main, so the program
// starts itself once more with a short spin (docs/lab/2026-11-20-performance.md has the figures). Settings of the
// user's own, OMP_WAIT_POLICY or GOMP_SPINCOUNT, stay as they are, and processes started from here see the user's
// environment.
void choose_thread_waiting(char** arguments);

}  // namespace quench
