#pragma once
// Release. API and ABI are stable within one minor release (docs/reference/api.md).

// Major release; 0: minor releases may break the API.
#define QUENCH_VERSION_MAJOR 0
// Minor release.
#define QUENCH_VERSION_MINOR 2
// Patch release.
#define QUENCH_VERSION_PATCH 0
// Release as text.
#define QUENCH_VERSION "0.2.0"
