// Copies of counts to the host on a backend whose copies are complete once synchronized.

#include <gmock/gmock.h>

#include <cstdlib>
#include <cstring>

#include "core/memory/allocator.h"
#include "distributed/experts/expert_parallel_dispatcher.h"

namespace quench::distributed {
namespace {

constexpr Device kFakeGpu{DeviceType::cuda, 15};

// Host memory, calls by name. A copy on a created stream is in flight until that stream, or an event recorded on it, is
// synchronized.
class CopyingBackend final : public Backend {
 public:
  CopyingBackend() { register_backend(DeviceType::cuda, this); }
  ~CopyingBackend() override { register_backend(DeviceType::cuda, replaced_); }

  [[nodiscard]] int device_count() const override { return kFakeGpu.index + 1; }
  [[nodiscard]] std::string device_name(Device) const override { return "fake GPU"; }
  [[nodiscard]] DeviceMemory memory(Device) const override { return {std::int64_t{1} << 30, std::int64_t{1} << 30}; }
  void* allocate(Device, std::size_t bytes) override { return std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096); }
  void deallocate(Device, void* pointer, std::size_t) noexcept override { std::free(pointer); }
  void* allocate_pinned(Device device, std::size_t bytes) override { return allocate(device, bytes); }
  Stream create_stream(Device device) override { return {device, &stream_}; }
  void destroy_stream(Stream) noexcept override {}
  void synchronize(Stream stream) override { finish(stream.handle, "stream"); }
  Event create_event(Device device) override { return {device, &event_}; }
  void destroy_event(Event) noexcept override {}
  // A released pinned block records an event on the default stream.
  void record(Event, Stream stream) override {
    if (stream.handle == nullptr) {
      calls.push_back(in_flight_ ? "released in flight" : "released");
    } else if (record_fails) {
      QUENCH_FAIL(ErrorCode::failed, "the event cannot be recorded");
    }
  }
  void wait(Stream, Event) override {}
  void synchronize(Event) override { finish(&stream_, "event"); }
  void copy(void* to, Device, const void* from, Device, std::size_t bytes, Stream stream) override {
    std::memcpy(to, from, bytes);
    if (stream.handle == nullptr) return;
    in_flight_ = true;
    calls.emplace_back("copy");
  }
  void fill_zero(void* pointer, std::size_t bytes, Stream) override { std::memset(pointer, 0, bytes); }

  bool record_fails = false;
  std::vector<std::string> calls;

 private:
  void finish(const void* stream, const char* point) {
    if (stream == &stream_ && std::exchange(in_flight_, false)) calls.emplace_back(point);
  }

  Backend* replaced_ = has_backend(DeviceType::cuda) ? &backend(DeviceType::cuda) : nullptr;
  char stream_ = 0, event_ = 0;
  bool in_flight_ = false;
};

class CountCopy : public ::testing::Test {
 protected:
  ~CountCopy() override { Allocator::of(kFakeGpu).trim(); }

  [[nodiscard]] static Tensor counts() {
    Tensor tensor = Tensor::empty({4}, DType::f32);
    for (int i = 0; i < 4; ++i) tensor.data<float>()[i] = static_cast<float>(i + 3);
    return tensor.to(kFakeGpu);
  }

  CopyingBackend gpu_;
  ExpertParallelDispatcher dispatcher_{single_group("experts", kFakeGpu), false,
                                       std::make_shared<ExposedCommTimer>(kFakeGpu)};
};

TEST_F(CountCopy, IsCompleteWhenCountsAreRead) {
  std::vector<std::int64_t> own;
  EXPECT_THAT(dispatcher_.exchange_counts(counts(), 18)->wait(own), ::testing::ElementsAre(3, 4, 5, 6));
  EXPECT_THAT(own, ::testing::ElementsAre(3, 4, 5, 6));
}

TEST_F(CountCopy, IsCompleteBeforeItsMemoryIsFreed) {
  (void)dispatcher_.exchange_counts(counts(), 18);
  EXPECT_THAT(gpu_.calls, ::testing::ElementsAre("copy", "event", "released"));
}

TEST_F(CountCopy, IsCompleteBeforeItsMemoryIsFreedWithoutAnEvent) {
  gpu_.record_fails = true;
  EXPECT_THROW((void)dispatcher_.exchange_counts(counts(), 18), Error);
  EXPECT_THAT(gpu_.calls, ::testing::ElementsAre("copy", "stream", "released"));
}

}  // namespace
}  // namespace quench::distributed
