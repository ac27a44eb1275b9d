#pragma once
// Release of the library.

#include "core/system/version.h"
