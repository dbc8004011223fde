#include "io/meters.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>

namespace geomx::io {

Clocks::Clocks(const std::string& path, std::size_t count) {
  if (path.empty()) {
    own_ = std::vector<Clock>(count);
    clocks_ = own_.data();
    count_ = count;
    return;
  }
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) throw std::runtime_error("cannot open the clocks of shared links: " + path);
  struct stat status {};
  void* memory = MAP_FAILED;
  if (fstat(file, &status) == 0 && status.st_size > 0) {
    memory = mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ | PROT_WRITE,
                  MAP_SHARED, file, 0);
  }
  close(file);
  if (memory == MAP_FAILED) {
    throw std::runtime_error("cannot read the clocks of shared links: " + path);
  }
  clocks_ = static_cast<Clock*>(memory);
  count_ = static_cast<std::size_t>(status.st_size) / sizeof(Clock);
}

Clocks::~Clocks() {
  if (own_.empty() && clocks_ != nullptr) munmap(clocks_, count_ * sizeof(Clock));
}

Meters::Meters(std::vector<Meter> meters, std::map<NodeId, Passage> passages,
               std::shared_ptr<Clocks> clocks)
    : meters_(std::move(meters)), passages_(std::move(passages)), clocks_(std::move(clocks)) {
  for (const Meter& meter : meters_) {
    if (meter.clock >= clocks_->size()) throw std::invalid_argument("a meter without a clock");
  }
  for (const auto& [peer, passage] : passages_) {
    for (const std::uint32_t meter : passage.meters) {
      if (meter >= meters_.size()) throw std::invalid_argument("a passage over no such meter");
    }
    if (!(passage.efficiency > 0.0)) throw std::invalid_argument("an efficiency of zero or less");
  }
}

Time Meters::Pass(NodeId peer, std::size_t bytes, Time began, Time ended) {
  const auto found = passages_.find(peer);
  if (found == passages_.end()) return ended;
  const double wire_bytes = static_cast<double>(bytes) / found->second.efficiency;
  const Time origin = origin_.value_or(began);
  Time through = ended;
  for (const std::uint32_t index : found->second.meters) {
    Meter& meter = meters_[index];
    Clocks::Clock& clock = (*clocks_)[meter.clock];
    Time taken = clock.load();
    Time done;
    do {
      done = meter.course.Finish(std::max(taken, began) - origin, wire_bytes);
      if (done == kNever) return kNever;
      done += origin;
    } while (!clock.compare_exchange_weak(taken, done));
    through = std::max(through, done);
  }
  return through;
}

}  // namespace geomx::io
