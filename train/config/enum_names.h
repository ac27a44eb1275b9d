#pragma once
// The words of the config's enums.

#include <array>
#include <string_view>
#include <utility>

#include "train/config/run_config.h"
#include "train/config/value_codec.h"

namespace quench {

template <class E, std::size_t N>
using EnumTable = std::array<std::pair<E, std::string_view>, N>;

template <>
struct EnumNames<ModelSection::Init> {
  using E = ModelSection::Init;
  static constexpr EnumTable<E, 3> values = {{{E::automatic, "auto"}, {E::random, "random"}, {E::load, "load"}}};
};

template <>
struct EnumNames<DataSection::Eos> {
  using E = DataSection::Eos;
  static constexpr EnumTable<E, 3> values = {{{E::automatic, "auto"}, {E::append, "append"}, {E::none, "none"}}};
};

template <>
struct EnumNames<DataSection::OnBadRecord> {
  using E = DataSection::OnBadRecord;
  static constexpr EnumTable<E, 2> values = {{{E::stop, "stop"}, {E::skip, "skip"}}};
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
struct EnumNames<LrScheduleKind> {
  using E = LrScheduleKind;
  static constexpr EnumTable<E, 4> values = {
      {{E::cosine, "cosine"}, {E::linear, "linear"}, {E::wsd, "wsd"}, {E::constant, "constant"}}};
};

template <>
struct EnumNames<LrDecayShape> {
  using E = LrDecayShape;
  static constexpr EnumTable<E, 3> values = {{{E::linear, "linear"}, {E::cosine, "cosine"}, {E::sqrt, "sqrt"}}};
};

template <>
struct EnumNames<RecipeSection::GradientRounding> {
  using E = RecipeSection::GradientRounding;
  static constexpr EnumTable<E, 2> values = {{{E::nearest, "nearest"}, {E::stochastic, "stochastic"}}};
};

template <>
struct EnumNames<ParallelSection::ExpertRowsForm> {
  using E = ParallelSection::ExpertRowsForm;
  static constexpr EnumTable<E, 2> values = {{{E::high_precision, "high_precision"}, {E::mxfp8, "mxfp8"}}};
};

template <>
struct EnumNames<CheckpointSection::OnSaveError> {
  using E = CheckpointSection::OnSaveError;
  static constexpr EnumTable<E, 2> values = {{{E::keep_training, "continue"}, {E::stop, "stop"}}};
};

template <>
struct EnumNames<ProgressDisplay> {
  using E = ProgressDisplay;
  static constexpr EnumTable<E, 3> values = {{{E::automatic, "auto"}, {E::on, "on"}, {E::off, "off"}}};
};

}  // namespace quench
