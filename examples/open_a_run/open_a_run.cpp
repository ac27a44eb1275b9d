// Opens a training run, merges its adapters, measures the perplexity of a text, writes the model in int4, and continues
// a prompt with what it wrote.
//   open_a_run RUN TEXT OUTPUT [DEVICE]
#include <quench/train.h>

#include <cstdio>

using namespace quench;

int main(int argc, char** argv) {
  try {
    init_logging();  // for warnings: layers that the scheme does not suit, programs that cannot read the folder
    if (argc < 4) throw Error(ErrorCode::bad_config, "usage: open_a_run RUN TEXT OUTPUT [DEVICE]");
    const std::string device = argc > 4 ? argv[4] : "auto";
    const std::vector<std::string> text{argv[2]};

    // A run folder, checkpoint, model folder or GGUF file.
    Model model = Model::open(argv[1], {.device = device});
    std::printf("a %s with %lld parameters\n", to_string(model.source().kind()).data(),
                static_cast<long long>(model.config().parameter_count()));
    if (const recipes::Adapters* adapters = model.adapters()) {
      std::printf("merging the adapters of %zu layers\n", adapters->layers().size());
      model.merge_adapters();
    }
    std::printf("perplexity %.3f\n", model.perplexity(text));

    // The codes of a run with quantization-aware training are those that it trained.
    const Scheme* trained = model.trained_scheme().scheme;
    SaveTarget target{.path = argv[3], .format = "compressed-tensors"};
    target.quantization.scheme = trained != nullptr ? trained->name : "int4_weight_only_g32";
    const SavedModel saved = model.save(target);
    std::printf("wrote %s, %s, %s\n", saved.path.c_str(), saved.scheme.c_str(),
                size_text(saved.report.file_bytes).c_str());

    // Quantized weights stay packed.
    const Model written = Model::open(saved.path, {.device = device, .mtp = MtpLayers::left_out});
    std::printf("perplexity %.3f in int4\n", written.perplexity(text));
    const std::unique_ptr<Tokenizer> tokenizer = written.require_tokenizer();
    const GenerationOptions options{.max_new_tokens = 16,
                                    .stop_tokens = written.token_ids(tokenizer.get()).generation.eos};
    const GenerationResult result = generate(written.model(), tokenizer->encode("The "), options);
    std::printf("The %s\n%zu tokens\n", tokenizer->decode(result.tokens).c_str(), result.tokens.size());
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
