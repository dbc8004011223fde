// Memory of a device, or of the host for copies to and from it, lent and taken back.
//
// Taking such memory from the system stops the device or the host for longer than a tensor needs to
// cross the bus, so what comes back is kept for the next who asks, up to a bound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels/queue.h"

namespace geomx::kernels {

class Lender : public std::enable_shared_from_this<Lender> {
 public:
  // The host's plain memory is as in memory.h.
  enum class Kind { kDevice, kPinned, kHost };

  // `queue` is used for nothing else. At most `most` bytes are kept, and of pinned memory as many at
  // most are out.
  Lender(std::unique_ptr<Queue> queue, Kind kind, std::size_t most)
      : queue_(std::move(queue)), kind_(kind), most_(most) {}
  ~Lender();
  Lender(const Lender&) = delete;
  Lender& operator=(const Lender&) = delete;

  // At least `bytes`, given back when nobody points there any more: by then no queue may work on it.
  // Pinned memory beyond the bound is the host's own, to which copies are slower. Throws
  // std::bad_alloc. Any thread.
  std::shared_ptr<std::byte> Lend(std::size_t bytes);

  std::size_t kept();
  // What lies in memory of this device, once all that works there is done.
  void Fetch(void* to, const std::byte* from, std::size_t bytes);

 private:
  struct Block {
    std::byte* memory;
    std::size_t bytes;
  };

  std::byte* Take(std::size_t bytes);
  void Return(Block block);
  void GiveBack(std::byte* memory);

  std::mutex mutex_;
  std::unique_ptr<Queue> queue_;
  Kind kind_;
  std::size_t most_, kept_bytes_ = 0, lent_bytes_ = 0;
  std::vector<Block> kept_;
};

// Where arrays are worked on. Whoever holds what was lent there keeps it until what was asked for is
// done: a codec in the owners of the parts that it encodes.
struct Workplace {
  Queue& queue;
  Lender& memory;
};

// The processor's: everything is done at once. Any thread.
const Workplace& Host();

// A workplace of one thread's own, on a device.
class Workshop {
 public:
  // Where starting the work takes about as long as doing it on the host.
  static constexpr std::uint64_t kLeastElements = std::uint64_t{1} << 14;

  // Arrays of fewer elements are not worth the way there. `most_kept`: see Lender.
  Workshop(const std::function<std::unique_ptr<Queue>()>& open, std::uint64_t least_elements,
           std::size_t most_kept = std::size_t{256} << 20);

  bool Suits(std::uint64_t elements) const { return elements >= least_; }
  Workplace place() { return {*queue_, *memory_}; }
  // `values` of the host, there; read by the time of the next Wait.
  std::shared_ptr<std::byte> Bring(const void* values, std::size_t bytes);

 private:
  std::unique_ptr<Queue> queue_;
  std::shared_ptr<Lender> memory_;
  std::uint64_t least_;
};

// What a codec or an optimizer keeps from round to round, wherever it was last worked on.
class Resident {
 public:
  Resident() = default;
  Resident(Resident&& other) noexcept { *this = std::move(other); }
  Resident& operator=(Resident&& other) noexcept {
    loan_ = std::move(other.loan_);
    lender_ = std::move(other.lender_);
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }

  // `n` values where `place` works: zeros at first, then what was left. They stay there until they are
  // asked for elsewhere, which takes a copy and waits for the device.
  template <class T = float>
  T* At(const Workplace& place, std::uint64_t n) {
    return reinterpret_cast<T*>(BytesAt(place, n * sizeof(T)));
  }
  // What keeps those values until work that was asked for is done.
  const std::shared_ptr<std::byte>& loan() const { return loan_; }
  bool empty() const { return bytes_ == 0; }

 private:
  std::byte* BytesAt(const Workplace& place, std::size_t bytes);

  std::shared_ptr<std::byte> loan_;
  std::shared_ptr<Lender> lender_;
  std::size_t bytes_ = 0;
};

}  // namespace geomx::kernels
