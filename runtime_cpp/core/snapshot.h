// What a snapshot of a recorded node holds besides the node (RecordedNode::Snapshot, Replay).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/archive.h"
#include "core/records.h"
#include "core/send_queue.h"

namespace geomx {

// A message that has arrived, and counts from `at` on.
struct Held {
  NodeId from = 0;
  Time at = 0;
  Message message;

  void Exchange(Archive& archive) { archive(from, at, message); }
};

// A message on its way through the emulated network.
struct Sending {
  NodeId peer = 0;
  Lane lane = Lane::kReliable;
  Message message;

  void Exchange(Archive& archive) { archive(peer, lane, message); }
};

// The driver's part.
struct OutsideNode {
  std::vector<Held> held;          // in the order of arrival
  std::vector<Sending> under_way;  // of each lane, the oldest first
  std::uint32_t restarts = 0;      // processes that have continued this node so far
  std::function<void(Archive&)> exchange;  // links, and what else a replay would tell its handler
};

// Writes bytes as records of states of a moderate length.
class PieceWriter {
 public:
  explicit PieceWriter(JournalOut& out) : out_(out) {}

  void Write(Bytes bytes) {
    while (!bytes.empty()) {
      if (size_ == kPiece) Leave(true);
      const Bytes part = bytes.first(std::min(bytes.size(), kPiece - size_));
      std::memcpy(piece_.get() + size_, part.data(), part.size());
      size_ += part.size();
      bytes = bytes.subspan(part.size());
    }
  }
  void End() { Leave(false); }

 private:
  static constexpr std::size_t kPiece = 4 << 20;

  static std::shared_ptr<std::byte[]> NewPiece() {
    return std::make_shared_for_overwrite<std::byte[]>(kPiece);
  }

  void Leave(bool more) {
    out_.Add(RecordWriter(RecordKind::kState).Put(more).body(),
             Payload::View(Bytes(piece_.get(), size_), piece_));
    out_.Commit();
    piece_ = more ? NewPiece() : nullptr;
    size_ = 0;
  }

  JournalOut& out_;
  std::shared_ptr<std::byte[]> piece_ = NewPiece();
  std::size_t size_ = 0;
};

}  // namespace geomx
