#pragma once
// Release. API and ABI are stable within one minor release (docs/reference/api.md).

#define QUENCH_VERSION_MAJOR 0
#define QUENCH_VERSION_MINOR 2
#define QUENCH_VERSION_PATCH 0
#define QUENCH_VERSION "0.2.0"
