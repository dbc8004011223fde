#include "kernels/workplace.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace geomx::kernels {

const Workplace& Host() {
  static const std::unique_ptr<Queue> queue = OpenQueue("cpu");
  static const auto memory = std::make_shared<Lender>(OpenQueue("cpu"), Lender::Kind::kHost, 0);
  static const Workplace host{*queue, *memory};
  return host;
}

Workshop::Workshop(const std::function<std::unique_ptr<Queue>()>& open,
                   std::uint64_t least_elements, std::size_t most_kept)
    : queue_(open()),
      memory_(std::make_shared<Lender>(open(), Lender::Kind::kDevice, most_kept)),
      pinned_(std::make_shared<Lender>(open(), Lender::Kind::kPinned, most_kept)),
      least_(least_elements) {}

std::shared_ptr<std::byte> Workshop::Upload(const void* values, std::size_t bytes) {
  // From pinned memory: a copy from any other would wait for the work that is queued before it.
  const std::shared_ptr<std::byte> passing = pinned_->Lend(bytes);
  if (bytes > 0) std::memcpy(passing.get(), values, bytes);
  std::shared_ptr<std::byte> there = memory_->Lend(bytes);
  queue_->Copy(there.get(), passing.get(), bytes);
  Keep(passing);
  Keep(there);
  return there;
}

std::shared_ptr<std::byte> Workshop::Download(const std::byte* there, std::size_t bytes) {
  std::shared_ptr<std::byte> here = pinned_->Lend(bytes);
  queue_->Copy(here.get(), there, bytes);
  Keep(here);
  return here;
}

std::byte* Resident::BytesAt(const Workplace& place, std::size_t bytes) {
  if (lender_.get() != &place.memory || bytes_ < bytes) {
    const std::shared_ptr<std::byte> loan = place.memory.Lend(bytes);
    std::vector<std::byte> passing(std::min(bytes_, bytes));
    if (!passing.empty()) {
      lender_->Fetch(passing.data(), loan_.get(), passing.size());
      place.queue.Copy(loan.get(), passing.data(), passing.size());
      place.queue.Wait();
    }
    place.queue.Clear(loan.get() + passing.size(), bytes - passing.size());
    loan_ = loan;
    lender_ = place.memory.shared_from_this();
    bytes_ = bytes;
  }
  return loan_.get();
}

}  // namespace geomx::kernels
