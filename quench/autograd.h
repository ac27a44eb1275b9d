#pragma once
// Public API of module autograd: variables, tape, differentiable functions, recompute, gradient checks. Namespace
// quench::autograd.

#include "autograd/functions.h"
#include "autograd/functions_mla.h"
#include "autograd/functions_moe.h"
#include "autograd/functions_tensor.h"
#include "autograd/gradcheck.h"
#include "autograd/recompute.h"
#include "autograd/swiglu.h"
#include "autograd/tape.h"
#include "autograd/variable.h"
#include "autograd/weight.h"
#include "quench/core.h"
