#pragma once
// Names of the enumerations in config sections, as config files spell them.

#include "core/system/enum_names.h"
#include "train/config/run_config.h"

namespace quench {

template <>
struct EnumNames<ModelSection::Init> {
  using E = ModelSection::Init;
  static constexpr EnumTable<E, 3> values = {{{E::automatic, "auto"}, {E::random, "random"}, {E::load, "load"}}};
};

template <>
struct EnumNames<NewTokenInit> {
  using E = NewTokenInit;
  static constexpr EnumTable<E, 2> values = {{{E::mean, "mean"}, {E::normal, "normal"}}};
};

template <>
struct EnumNames<TrainingSection::ActivationCheckpoint> {
  using E = TrainingSection::ActivationCheckpoint;
  static constexpr EnumTable<E, 3> values = {{{E::none, "none"}, {E::selective, "selective"}, {E::full, "full"}}};
};

template <>
struct EnumNames<NonfinitePolicy> {
  using E = NonfinitePolicy;
  static constexpr EnumTable<E, 3> values = {{{E::stop, "stop"}, {E::skip, "skip"}, {E::rollback, "rollback"}}};
};

template <>
struct EnumNames<LrDecayShape> {
  using E = LrDecayShape;
  static constexpr EnumTable<E, 3> values = {{{E::linear, "linear"}, {E::cosine, "cosine"}, {E::sqrt, "sqrt"}}};
};

template <>
struct EnumNames<RecipeSection::Scaling> {
  using E = RecipeSection::Scaling;
  static constexpr EnumTable<E, 2> values = {{{E::dynamic, "dynamic"}, {E::delayed, "delayed"}}};
};

template <>
struct EnumNames<RecipeSection::GradientRounding> {
  using E = RecipeSection::GradientRounding;
  static constexpr EnumTable<E, 2> values = {{{E::nearest, "nearest"}, {E::stochastic, "stochastic"}}};
};

template <>
struct EnumNames<recipes::BaseForm> {
  using E = recipes::BaseForm;
  static constexpr EnumTable<E, 4> values = {
      {{E::dense, "dense"}, {E::nf4, "nf4"}, {E::float8, "float8"}, {E::stored, "stored"}}};
};

template <>
struct EnumNames<ParallelSection::DispatchFormat> {
  using E = ParallelSection::DispatchFormat;
  static constexpr EnumTable<E, 2> values = {{{E::high_precision, "high_precision"}, {E::mxfp8, "mxfp8"}}};
};

template <>
struct EnumNames<ParallelSection::Schedule> {
  using E = ParallelSection::Schedule;
  static constexpr EnumTable<E, 2> values = {{{E::one_f_one_b, "1f1b"}, {E::interleaved, "interleaved"}}};
};

template <>
struct EnumNames<ProgressDisplay> {
  using E = ProgressDisplay;
  static constexpr EnumTable<E, 3> values = {{{E::automatic, "auto"}, {E::on, "on"}, {E::off, "off"}}};
};

}  // namespace quench
