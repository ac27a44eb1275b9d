#pragma once
// Release, from which the build, the package and the documentation take theirs. API and ABI are stable within one minor
// release (docs/reference/api.md).

// Major release; 0: minor releases may break the API.
#define QUENCH_VERSION_MAJOR 0
// Minor release.
#define QUENCH_VERSION_MINOR 3
// Patch release.
#define QUENCH_VERSION_PATCH 0

// Text of three numbers; internal, as is the next macro.
#define QUENCH_VERSION_TEXT_(major, minor, patch) #major "." #minor "." #patch
// Expansion of the numbers before they become text.
#define QUENCH_VERSION_OF_(major, minor, patch) QUENCH_VERSION_TEXT_(major, minor, patch)
// Release as text, "MAJOR.MINOR.PATCH".
#define QUENCH_VERSION QUENCH_VERSION_OF_(QUENCH_VERSION_MAJOR, QUENCH_VERSION_MINOR, QUENCH_VERSION_PATCH)
