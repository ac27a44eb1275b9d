#pragma once
// Public API of module data: tokenizers, chat templates, datasets of text, records and tokens, batches. Namespace
// quench.

#include "data/formats/shard_writer.h"
#include "data/formats/token_format.h"
#include "data/sampling/loader.h"
#include "data/sampling/open_dataset.h"
#include "data/text/chat_prompt.h"
#include "data/text/chat_template.h"
#include "data/text/record_kind.h"
#include "data/text/text_format.h"
#include "data/tokenizer/bpe_trainer.h"
#include "data/tokenizer/stream_decoder.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "quench/core.h"
