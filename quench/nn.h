#pragma once
// Public API of module nn: modules and parameters, linear layers and their kernels, decoder models by family,
// optimizers, learning-rate schedules. Namespace quench::nn.

#include "nn/causal_lm.h"
#include "nn/decoder_layer.h"
#include "nn/embedding.h"
#include "nn/initialize.h"
#include "nn/linear.h"
#include "nn/linear_kernel.h"
#include "nn/model_config.h"
#include "nn/models/decoder_block.h"
#include "nn/models/table.h"
#include "nn/module.h"
#include "nn/optim/adamw.h"
#include "nn/optim/lr_schedule.h"
#include "nn/optim/optimizer.h"
#include "nn/optim/table.h"
#include "nn/parameter.h"
#include "nn/rms_norm.h"
#include "nn/sublayer.h"
#include "quench/autograd.h"
