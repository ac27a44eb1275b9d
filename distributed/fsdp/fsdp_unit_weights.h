#pragma once
// Gathered weights of an FSDP unit: unquantized, or the float8 values that the layers' kernels read (1 byte per
// element).
//
// Each process casts its own rows with scales of the full weight: tensorwise and columnwise from reduced amax; rowwise
// scales are local and gathered with the values. Bit-identical to a cast of the full weight.
//
// Each phase gathers the formats declared by the kernels (nn::LinearKernel::weight_requirements), then those used in
// its last run; others on demand.

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "distributed/fsdp/coalesced_gather.h"
#include "distributed/fsdp/column_amax.h"

namespace quench::distributed {

// Collectives of one kind.
using Works = std::vector<Work>;

enum class Phase : std::uint8_t { forward, backward };

class FsdpUnitWeights {
 public:
  // `double_buffered`: see FsdpUnit. `layout` must outlive this object.
  FsdpUnitWeights(std::string name, const FlatLayout& layout, bool double_buffered,
                  std::shared_ptr<FsdpContext> shared);
  ~FsdpUnitWeights();
  FsdpUnitWeights(const FsdpUnitWeights&) = delete;
  FsdpUnitWeights& operator=(const FsdpUnitWeights&) = delete;

  // Starts the all-gather of the phase's contents unless current or pending for the parameters' versions. Releases
  // outdated contents and, unless in use, those that the phase does not read.
  void gather(Phase part);
  void free();
  // Gathers the forward pass's contents and keeps them until let_go(). Uses in between do not change what later passes
  // gather; contents that are missing then throw unsupported, since other processes may not need them.
  void hold();
  void let_go() noexcept;
  // True if the backward pass reads contents that the forward pass does not.
  [[nodiscard]] bool changes_contents() const noexcept;
  // Reshards after the last use.
  void set_frees_itself(bool frees) noexcept { frees_itself_ = frees; }

  // By index in the layout (autograd::WeightStorage).
  [[nodiscard]] Tensor acquire(std::size_t parameter);
  [[nodiscard]] QuantTensor acquire_quantized(std::size_t parameter, const autograd::WeightFormat& form);
  void release() noexcept;

 private:
  // Bit mask.
  using Contents = unsigned;
  static constexpr Contents kValues = 1, kForwardCodes = 2, kBackwardCodes = 4;

  struct Codes {
    Tensor payload;  // padded shape
    Tensor scales;   // per row, per column, or one
  };
  struct Entry {
    nn::WeightFormats forms;
    std::array<Contents, 2> wanted{kValues, kValues};
    Contents used = 0;
    Contents there = 0;          // gathered or pending
    std::uint64_t version = 0;   // weight version that `there` holds
    Tensor values;               // padded shape
    std::array<Codes, 2> codes;  // by Phase
  };
  struct PendingGather;

  void begin_part(Phase part);
  void take_forms();
  // 0 if the parameter is not gathered in this format.
  [[nodiscard]] static Contents bit_of(const nn::WeightFormats& forms, const autograd::WeightFormat& form);
  [[nodiscard]] static std::size_t codes_index(Contents bit) { return bit == kForwardCodes ? 0 : 1; }
  [[nodiscard]] static const autograd::WeightFormat& form_of(const Entry& entry, Contents bit);
  void drop(std::size_t parameter, Contents contents);
  // Gathers contents that are missing before a use.
  void need(std::size_t parameter, Contents bit);
  void start_gather(const std::vector<Contents>& contents);
  void load_values(std::size_t parameter, bool together, PendingGather& pending_gather);
  void load_codes(std::size_t parameter, Contents bit, PendingGather& pending_gather);
  void cast_own_rows(std::size_t parameter, Contents bit, const Tensor& payload, const Tensor& scales);
  void end_gather();
  [[nodiscard]] Tensor allocate(const Shape& shape, DType dtype);
  void give_back(Tensor& buffer);

  std::string name_;
  const FlatLayout& layout_;
  bool double_buffered_;
  std::shared_ptr<FsdpContext> shared_;
  std::vector<Entry> entries_;
  ColumnAmax columns_;
  std::vector<std::unique_ptr<PendingGather>> pending_gathers_;
  Works gathering_;
  Phase part_ = Phase::forward;
  bool frees_itself_ = false;
  int users_ = 0;
  bool held_ = false;
};

}  // namespace quench::distributed
