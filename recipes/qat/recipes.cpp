// QAT recipes; exported under a scheme of the simulated format.

#include "core/ops/quantize/weight_grids.h"
#include "core/system/check.h"
#include "recipes/qat/qat_embedding.h"
#include "recipes/qat/qat_experts.h"
#include "recipes/qat/qat_linear.h"
#include "recipes/qat/scale_parameter.h"
#include "recipes/recipe.h"
#include "recipes/sparse.h"

namespace quench::recipes {
namespace {

using Kind = FakeFormat::Kind;

constexpr std::int64_t kUsualGroup = 32;
constexpr int kUsualBits = 4;

constexpr FakeFormat kInt8Token{.kind = Kind::integer,
                                .integers = {.bits = 8, .mapping = IntMapping::asymmetric, .group_size = 0}};
constexpr FakeFormat kInt8Channel{.kind = Kind::integer, .integers = {.bits = 8}};
constexpr FakeFormat kIntGroups{.kind = Kind::integer, .integers = {.bits = kUsualBits, .group_size = kUsualGroup}};
constexpr FakeFormat kFloat8{.kind = Kind::float8};
constexpr FakeFormat kMxfp4{.kind = Kind::mx, .element = ElementFormat::e2m1};
constexpr FakeFormat kNvfp4{.kind = Kind::nvfp4};

constexpr QatScheme kInt8DynInt4{"qat_int8dyn_int4", kInt8Token, kIntGroups};
constexpr QatScheme kInt8DynIntx{"qat_int8dyn_intx", kInt8Token, kIntGroups};
constexpr QatScheme kInt4WeightOnly{"qat_int4_weight_only", {}, kIntGroups};
constexpr QatScheme kIntxWeightOnly{"qat_intx_weight_only", {}, kIntGroups};
constexpr QatScheme kInt8{"qat_int8", kInt8Token, kInt8Channel};
constexpr QatScheme kFloat8Both{"qat_float8", kFloat8, kFloat8};
constexpr QatScheme kFloat8Int4{"qat_float8_int4", kFloat8, kIntGroups};
constexpr QatScheme kMxfp4Both{"qat_mxfp4", kMxfp4, kMxfp4};
constexpr QatScheme kMxfp4WeightOnly{"qat_mxfp4_weight_only", {}, kMxfp4};
constexpr QatScheme kNvfp4Both{"qat_nvfp4", kNvfp4, kNvfp4};
constexpr QatScheme kNvfp4WeightOnly{"qat_nvfp4_weight_only", {}, kNvfp4};

constexpr FakeFormat sparse(FakeFormat format, Sparsity24 rule) {
  format.sparsity = rule;
  return format;
}
constexpr QatScheme kSparse{"sparse24", {}, sparse({}, Sparsity24::magnitude)};
constexpr QatScheme kSparseTransposable{"sparse24_transposable", {}, sparse({}, Sparsity24::transposable)};
constexpr QatScheme kInt4Sparse{"qat_int4_weight_only_sparse24", {}, sparse(kIntGroups, Sparsity24::magnitude)};

QatScheme chosen(QatScheme scheme, const RecipeOptions& options) {
  IntQuantOptions& integers = scheme.weight.integers;
  if (options.weight_bits) integers.bits = static_cast<int>(*options.weight_bits);
  if (options.group_size) integers.group_size = *options.group_size;
  if (options.asymmetric_weights) integers.mapping = IntMapping::asymmetric;
  if (has_few_levels(options.weight_grid)) {
    integers.mapping = options.weight_grid;
    integers.bits = stored_bits(options.weight_grid);
  }
  integers.scale_dtype = options.scale_dtype;
  return scheme;
}

std::optional<FakeFormat::Problem> problem(const QatScheme& scheme, const nn::LinearInfo& layer) {
  for (const FakeFormat& format : {scheme.input, scheme.weight})
    if (auto found = format.problem(layer.out_features, layer.in_features)) return found;
  return std::nullopt;
}

template <const QatScheme& kScheme>
LinearPlan plan(const nn::LinearInfo& layer, const RecipeOptions& options) {
  const QatScheme scheme = chosen(kScheme, options);
  if (const auto found = problem(scheme, layer)) return {nullptr, found->reason, {}, found->key};
  // The loss of the head provides no gradient for scales.
  std::shared_ptr<nn::Parameter> scales;
  if (options.learned_scales && layer.name != nn::kHeadName)
    scales = make_scale_parameter(layer, scheme.weight.integers);
  return {std::make_shared<QatLinear>(scheme, options.keep_weights, nullptr, std::move(scales)), {}, {}};
}

template <const QatScheme& kScheme>
ExpertPlan plan_expert_layers(const nn::LinearInfo& layer, const RecipeOptions& options) {
  const QatScheme scheme = chosen(kScheme, options);
  if (const auto found = problem(scheme, layer)) return {nullptr, found->reason, found->key};
  if (options.learned_scales)
    return {nullptr, "scales of experts are not learned (recipe.learned_scales)", "recipe.learned_scales"};
  return {qat_experts(scheme, options.keep_weights), {}};
}

EmbeddingPlan plan_table(const nn::LinearInfo& table, const RecipeOptions& options) {
  FakeFormat format = kIntGroups;
  format.integers.bits = static_cast<int>(options.embedding_bits.value());
  format.integers.group_size = options.embedding_group_size.value_or(kUsualGroup);
  format.integers.scale_dtype = options.scale_dtype;
  if (const auto found = format.problem(table.out_features, table.in_features, "recipe.embedding_group_size"))
    return {nullptr, found->reason, found->key};
  return {qat_embedding(format), {}};
}

std::string table_scheme(const RecipeOptions& options) {
  const std::int64_t group = options.embedding_group_size.value_or(kUsualGroup);
  return fmt::format("int{}_weight_only{}", options.embedding_bits.value(),
                     group > 0 ? fmt::format("_g{}", group) : "");
}

// "int4_weight_only_g32", "int8dyn_int4_g32", "float8dyn_int4_g64", "int8dyn_int8_row", "ternary_weight_only_g64"
template <const QatScheme& kScheme>
std::string integer_scheme(const RecipeOptions& options) {
  const QatScheme scheme = chosen(kScheme, options);
  const IntQuantOptions& weight = scheme.weight.integers;
  const std::string codes =
      has_few_levels(weight.mapping) ? std::string(grid_name(weight.mapping)) : fmt::format("int{}", weight.bits);
  std::string name = scheme.input.kind == Kind::none     ? fmt::format("{}_weight_only", codes)
                     : scheme.input.kind == Kind::float8 ? fmt::format("float8dyn_{}", codes)
                                                         : fmt::format("int8dyn_{}", codes);
  if (weight.group_size > 0) name += fmt::format("_g{}", weight.group_size);
  if (weight.group_size == 0 && scheme.input.kind == Kind::integer) name += "_row";
  if (weight.mapping == IntMapping::asymmetric) name += "_asym";
  return name;
}

constexpr char kFloat8Dynamic[] = "float8_dynamic", kMxfp4Scheme[] = "mxfp4", kMxfp4Weights[] = "mxfp4_weight_only",
               kNvfp4Scheme[] = "nvfp4", kNvfp4Weights[] = "nvfp4_weight_only";
template <const char* kName>
std::string named(const RecipeOptions&) {
  return kName;
}

constexpr std::string_view kPlainKeys[] = {"keep_weights", "embedding_bits", "embedding_group_size"};
constexpr std::string_view kGroupKeys[] = {"keep_weights",   "group_size",           "learned_scales",
                                           "scale_lr",       "asymmetric_weights",   "scale_dtype",
                                           "embedding_bits", "embedding_group_size", "rules"};
constexpr std::string_view kInt8Keys[] = {"keep_weights", "learned_scales", "scale_lr",
                                          "scale_dtype",  "embedding_bits", "embedding_group_size"};
// No asymmetric_weights: a zero point would dequantize pruned elements to non-zero values.
constexpr std::string_view kSparseKeys[] = {"keep_weights"};
constexpr std::string_view kSparseGroupKeys[] = {"keep_weights", "group_size"};
constexpr std::string_view kBitsKeys[] = {"keep_weights",   "learned_scales",       "scale_lr",    "group_size",
                                          "weight_bits",    "asymmetric_weights",   "weight_grid", "scale_dtype",
                                          "embedding_bits", "embedding_group_size", "rules"};

}  // namespace

// RMS error of normal values: 8% in int4 groups of 32 (step amax / 7.5), 1% in int8 rows, 11% in mxfp4, 9% in nvfp4
// blocks. Clipped weights get no gradient: one of 32 where the largest value of a group is positive and just rounds up.
const Recipe kQatInt8DynInt4{"qat_int8dyn_int4",
                             "trains for int8 activations (per token) and int4 weights (in groups)",
                             plan<kInt8DynInt4>,
                             {.output_relative_l2 = 0.1, .gradient_relative_l2 = 0.15, .loss_relative = 0.05},
                             {.keys = kGroupKeys,
                              .required = RequiredLayers::all,
                              .scheme = integer_scheme<kInt8DynInt4>,
                              .embedding_scheme = table_scheme},
                             plan_expert_layers<kInt8DynInt4>,
                             plan_table};
const Recipe kQatInt4WeightOnly{"qat_int4_weight_only",
                                "trains for int4 weights (in groups)",
                                plan<kInt4WeightOnly>,
                                {.output_relative_l2 = 0.1, .gradient_relative_l2 = 0.15, .loss_relative = 0.05},
                                {.keys = kGroupKeys,
                                 .required = RequiredLayers::all,
                                 .scheme = integer_scheme<kInt4WeightOnly>,
                                 .embedding_scheme = table_scheme},
                                plan_expert_layers<kInt4WeightOnly>,
                                plan_table};
const Recipe kQatInt8{"qat_int8",
                      "trains for int8 activations (per token) and weights (per channel)",
                      plan<kInt8>,
                      {.output_relative_l2 = 0.03, .gradient_relative_l2 = 0.1, .loss_relative = 0.03},
                      {.keys = kInt8Keys,
                       .required = RequiredLayers::all,
                       .scheme = integer_scheme<kInt8>,
                       .embedding_scheme = table_scheme},
                      plan_expert_layers<kInt8>,
                      plan_table};
const Recipe kQatFloat8{"qat_float8",
                        "trains for float8 activations (per token) and weights (per channel)",
                        plan<kFloat8Both>,
                        {.output_relative_l2 = 0.05, .gradient_relative_l2 = 0.05, .loss_relative = 0.03},
                        {.keys = kPlainKeys,
                         .required = RequiredLayers::all,
                         .scheme = named<kFloat8Dynamic>,
                         .embedding_scheme = table_scheme},
                        plan_expert_layers<kFloat8Both>,
                        plan_table};
const Recipe kQatFloat8Int4{"qat_float8_int4",
                            "trains for float8 activations (per token) and int4 weights (in groups)",
                            plan<kFloat8Int4>,
                            {.output_relative_l2 = 0.1, .gradient_relative_l2 = 0.15, .loss_relative = 0.05},
                            {.keys = kGroupKeys,
                             .required = RequiredLayers::all,
                             .scheme = integer_scheme<kFloat8Int4>,
                             .embedding_scheme = table_scheme},
                            plan_expert_layers<kFloat8Int4>,
                            plan_table};
const Recipe kQatMxfp4{"qat_mxfp4",
                       "trains for mxfp4 activations and weights",
                       plan<kMxfp4Both>,
                       {.output_relative_l2 = 0.2, .gradient_relative_l2 = 0.15, .loss_relative = 0.06},
                       {.keys = kPlainKeys,
                        .required = RequiredLayers::all,
                        .scheme = named<kMxfp4Scheme>,
                        .embedding_scheme = table_scheme},
                       plan_expert_layers<kMxfp4Both>,
                       plan_table};
const Recipe kQatMxfp4WeightOnly{"qat_mxfp4_weight_only",
                                 "trains for mxfp4 weights",
                                 plan<kMxfp4WeightOnly>,
                                 {.output_relative_l2 = 0.2, .gradient_relative_l2 = 0.15, .loss_relative = 0.06},
                                 {.keys = kPlainKeys,
                                  .required = RequiredLayers::all,
                                  .scheme = named<kMxfp4Weights>,
                                  .embedding_scheme = table_scheme},
                                 plan_expert_layers<kMxfp4WeightOnly>,
                                 plan_table};
const Recipe kQatNvfp4{"qat_nvfp4",
                       "trains for nvfp4 activations and weights",
                       plan<kNvfp4Both>,
                       {.output_relative_l2 = 0.16, .gradient_relative_l2 = 0.12, .loss_relative = 0.06},
                       {.keys = kPlainKeys,
                        .required = RequiredLayers::all,
                        .scheme = named<kNvfp4Scheme>,
                        .embedding_scheme = table_scheme},
                       plan_expert_layers<kNvfp4Both>,
                       plan_table};
const Recipe kQatNvfp4WeightOnly{"qat_nvfp4_weight_only",
                                 "trains for nvfp4 weights",
                                 plan<kNvfp4WeightOnly>,
                                 {.output_relative_l2 = 0.16, .gradient_relative_l2 = 0.12, .loss_relative = 0.06},
                                 {.keys = kPlainKeys,
                                  .required = RequiredLayers::all,
                                  .scheme = named<kNvfp4Weights>,
                                  .embedding_scheme = table_scheme},
                                 plan_expert_layers<kNvfp4WeightOnly>,
                                 plan_table};
const Recipe kQatInt8DynIntx{
    "qat_int8dyn_intx",
    "trains for int8 activations (per token) and weights of recipe.weight_bits or weight_grid (in groups)",
    plan<kInt8DynIntx>,
    {.output_relative_l2 = 0.1, .gradient_relative_l2 = 0.15, .loss_relative = 0.05},
    {.keys = kBitsKeys,
     .required = RequiredLayers::all,
     .scheme = integer_scheme<kInt8DynIntx>,
     .embedding_scheme = table_scheme},
    plan_expert_layers<kInt8DynIntx>,
    plan_table};
const Recipe kQatIntxWeightOnly{"qat_intx_weight_only",
                                "trains for weights of recipe.weight_bits or weight_grid (in groups)",
                                plan<kIntxWeightOnly>,
                                {.output_relative_l2 = 0.1, .gradient_relative_l2 = 0.15, .loss_relative = 0.05},
                                {.keys = kBitsKeys,
                                 .required = RequiredLayers::all,
                                 .scheme = integer_scheme<kIntxWeightOnly>,
                                 .embedding_scheme = table_scheme},
                                plan_expert_layers<kIntxWeightOnly>,
                                plan_table};

// Normal values: the two smaller magnitudes of four hold 0.36 of the RMS; 0.42 is lost to a greedy transposable mask.
const Recipe kSparse24{"sparse24",
                       "trains for 2:4 sparse weights: of every four, the two largest magnitudes",
                       plan<kSparse>,
                       {.output_relative_l2 = 0.45, .gradient_relative_l2 = 0.45, .loss_relative = 0.15},
                       {.keys = kSparseKeys, .required = RequiredLayers::all}};
const Recipe kSparse24Transposable{"sparse24_transposable",
                                   "trains for weights that are 2:4 sparse along rows and columns",
                                   plan<kSparseTransposable>,
                                   {.output_relative_l2 = 0.5, .gradient_relative_l2 = 0.5, .loss_relative = 0.15},
                                   {.keys = kSparseKeys, .required = RequiredLayers::all}};
const Recipe kQatInt4WeightOnlySparse24{
    "qat_int4_weight_only_sparse24",
    "trains for 2:4 sparse int4 weights (in groups)",
    plan<kInt4Sparse>,
    {.output_relative_l2 = 0.45, .gradient_relative_l2 = 0.45, .loss_relative = 0.15},
    {.keys = kSparseGroupKeys, .required = RequiredLayers::all}};

}  // namespace quench::recipes
