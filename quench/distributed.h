#pragma once
// Public API of module distributed: process groups over NCCL and Gloo, ranks of a run, FSDP. Namespace
// quench::distributed.

#include "distributed/environment.h"
#include "distributed/fsdp/sharded_model.h"
#include "distributed/process_group.h"
#include "distributed/ranks.h"
#include "distributed/world.h"
#include "quench/recipes.h"
