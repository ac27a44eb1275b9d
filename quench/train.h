#pragma once
// Public API of module train: configs, training runs and steps, checkpoints, model folders, evaluation, generation,
// plug-ins. Namespace quench.

#include "quench/distributed.h"
#include "quench/export.h"
#include "train/check/load.h"
#include "train/checkpoint/checkpoint_list.h"
#include "train/checkpoint/checkpoint_reader.h"
#include "train/checkpoint/checkpoint_writer.h"
#include "train/checkpoint/run_lock.h"
#include "train/evaluation/perplexity.h"
#include "train/generation/decoder.h"
#include "train/generation/generator.h"
#include "train/model_folder/model_folder.h"
#include "train/model_folder/peft_folder.h"
#include "train/model_source/model_source.h"
#include "train/plan/estimate.h"
#include "train/run/trainer.h"
#include "train/setup/export_model.h"
#include "train/setup/model_setup.h"
#include "train/step/train_step.h"
#include "train/step/training_state.h"
