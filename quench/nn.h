#pragma once
// Public API of module nn: modules and parameters, linear layers and their kernels, decoder models by family,
// optimizers, learning-rate schedules. Namespace quench::nn.

#include "nn/decoder/causal_lm.h"
#include "nn/decoder/decoder_layer.h"
#include "nn/models/decoder_block.h"
#include "nn/modules/embedding.h"
#include "nn/modules/initialize.h"
#include "nn/modules/linear.h"
#include "nn/modules/linear_kernel.h"
#include "nn/modules/module.h"
#include "nn/modules/parameter.h"
#include "nn/modules/rms_norm.h"
#include "nn/modules/sublayer.h"
#include "nn/optim/adamw.h"
#include "nn/optim/lr_schedule.h"
#include "nn/optim/optimizer.h"
#include "nn/optim/table.h"
#include "nn/spec/model_config.h"
#include "nn/spec/model_family.h"
#include "quench/autograd.h"
