#pragma once
// The weights of one unit of a sharded model, gathered for the time in which they are used: as values, or as the
// float8 codes that the layers' kernels read, one byte an element in place of two or four.
//
// Each process casts its own rows, so that nothing is cast twice; the scales are those of the whole weights (by tensor
// and by column from maxima that are reduced, by row each process's own, gathered with the codes). Codes are the bits
// that a cast of the whole weight gives. The forward and the backward pass gather what each of them reads: the forms
// that the kernels declare (nn::LinearKernel::preferred_weight_formats), then what the last such part of a pass has
// asked for. Something else is gathered when it is asked for.

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "distributed/fsdp/coalesced_gather.h"
#include "distributed/fsdp/column_amax.h"

namespace quench::distributed {

// Work of one kind that several tensors of a unit wait for.
using Works = std::vector<Work>;

enum class Phase : std::uint8_t { forward, backward };

class FsdpUnitWeights {
 public:
  // `double_buffered`: there are more units of the same sizes, which share buffers; else memory comes from the
  // allocator each time. The layout outlives this object.
  FsdpUnitWeights(std::string name, const FlatLayout& layout, bool double_buffered,
                  std::shared_ptr<FsdpContext> shared);
  ~FsdpUnitWeights();
  FsdpUnitWeights(const FsdpUnitWeights&) = delete;
  FsdpUnitWeights& operator=(const FsdpUnitWeights&) = delete;

  // Begins to gather what this part of a pass reads, unless it is there or on its way in the parameters' present
  // versions. Gives back what it does not read.
  void gather(Phase part);
  // Gives the memory of everything back.
  void free();
  // Whether everything is freed after the last use.
  void set_frees_itself(bool frees) noexcept { frees_itself_ = frees; }

  // Of the parameter with this number in the layout (autograd::WeightStorage).
  [[nodiscard]] Tensor acquire(std::size_t parameter);
  [[nodiscard]] QuantTensor acquire_quantized(std::size_t parameter, const autograd::WeightFormat& form);
  void release() noexcept;

 private:
  // What of a parameter is gathered: bits.
  using Contents = unsigned;
  static constexpr Contents kValues = 1, kForwardCodes = 2, kBackwardCodes = 4;

  struct Codes {
    Tensor payload;  // of the padded shape
    Tensor scales;   // of its rows or columns, or one
  };
  struct Entry {
    nn::WeightFormats forms;
    std::array<Contents, 2> wanted{kValues, kValues};  // by Phase
    Contents used = 0;                                 // in this part of the pass
    Contents there = 0;                                // or on its way
    std::uint64_t version = 0;                         // of what is there
    Tensor values;                                     // of the padded shape
    std::array<Codes, 2> codes;                        // forward, backward
  };
  struct PendingGather;

  void begin_part(Phase part);
  void take_forms();
  // The bit of a form, 0 where the parameter is not gathered in it.
  [[nodiscard]] static Contents bit_of(const nn::WeightFormats& forms, const autograd::WeightFormat& form);
  [[nodiscard]] static std::size_t codes_index(Contents bit) { return bit == kForwardCodes ? 0 : 1; }
  [[nodiscard]] static const autograd::WeightFormat& form_of(const Entry& entry, Contents bit);
  void drop(std::size_t parameter, Contents contents);
  // Makes sure that a parameter's contents are there, for a use that begins.
  void need(std::size_t parameter, Contents bit);
  // Begins to gather the contents of each parameter that are not there.
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
};

}  // namespace quench::distributed
