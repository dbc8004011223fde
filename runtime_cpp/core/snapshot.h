// What a snapshot of a recorded node holds besides the node (RecordedNode::Snapshot, Replay).
#pragma once

#include <cstdint>
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
  explicit PieceWriter(JournalOut& out) : out_(out) { piece_->reserve(kPiece); }

  void Write(Bytes bytes) {
    while (!bytes.empty()) {
      if (piece_->size() == kPiece) Leave(true);
      const Bytes part = bytes.first(std::min(bytes.size(), kPiece - piece_->size()));
      piece_->insert(piece_->end(), part.begin(), part.end());
      bytes = bytes.subspan(part.size());
    }
  }
  void End() { Leave(false); }

 private:
  static constexpr std::size_t kPiece = 4 << 20;

  void Leave(bool more) {
    const auto piece = std::exchange(piece_, std::make_shared<std::vector<std::byte>>());
    out_.Add(RecordWriter(RecordKind::kState).Put(more).body(), Payload::View(*piece, piece));
    out_.Commit();
    piece_->reserve(more ? kPiece : 0);
  }

  JournalOut& out_;
  std::shared_ptr<std::vector<std::byte>> piece_ = std::make_shared<std::vector<std::byte>>();
};

}  // namespace geomx
