// Turns a shard's value into messages: encoded by its pipeline's codecs, cut by its slicers.
//
// No message is larger than a frame, so an urgent one never waits long for the wire. Messages point
// into the encoded parts and keep them alive: nothing is copied.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/codec.h"
#include "core/flow.h"
#include "core/message.h"
#include "core/node_state.h"
#include "core/shard_value.h"
#include "core/slicer.h"

namespace geomx {

// One encoding of a value, and the flow that it was made for. Other flows reuse it if their codecs
// are the same and keep no state.
struct Encoding {
  std::shared_ptr<Parts> parts;
  const Pipeline* pipeline = nullptr;
  bool pending = false;  // a device computes `parts`: valid from the next DeviceWork::Then on
};

class Encoder {
 public:
  // `state` outlives this.
  explicit Encoder(NodeState& state) : state_(state) {}

  // Fills `encoding`, unless it holds an encoding that serves this flow too.
  void Encode(Pipeline& pipeline, const ShardValue& value, Encoding& encoding);

  // Calls `take` with the messages of an encoded value, in the order in which they should leave.
  // Throws PluginFailure if a codec's part that cannot be cut is too large for a message.
  template <class Take>
  void Cut(Pipeline& pipeline, Header header, bool phantom, const std::shared_ptr<Parts>& encoded,
           Take take);
  // The same, as a list.
  std::vector<Message> Messages(Pipeline& pipeline, const Header& header, bool phantom,
                                const std::shared_ptr<Parts>& encoded);

 private:
  void Plain(const ShardValue& value, Encoding& encoding);
  std::uint64_t FrameRows(const Parts& encoded) const;
  std::uint64_t Bundle(const Pipeline& pipeline, const Parts& encoded,
                       std::uint64_t frame_rows) const;
  // Valid until the next call.
  const std::vector<Slice>& Slices(Pipeline& pipeline, const Header& header, const Parts& encoded,
                                   std::uint64_t frame_rows);
  Message MessageOf(const Header& header, const Slice& slice, bool phantom,
                    std::uint64_t frame_rows, const std::shared_ptr<Parts>& encoded) const;

  NodeState& state_;
  std::shared_ptr<Parts> dense_;  // of the last phantom value that nothing encoded
  std::shared_ptr<Parts> plain_;  // the same with memory, which it keeps while an encoding refers to it
  std::vector<Slice> slices_;     // of the last value that was cut
};

template <class Take>
void Encoder::Cut(Pipeline& pipeline, Header header, bool phantom,
                  const std::shared_ptr<Parts>& encoded, Take take) {
  const std::uint64_t frame_rows = FrameRows(*encoded);
  const std::vector<Slice>& slices = Slices(pipeline, header, *encoded, frame_rows);
  header.total_rows = static_cast<std::uint32_t>(encoded->rows);
  header.slices = static_cast<std::uint32_t>(slices.size());
  header.reliable = static_cast<std::uint32_t>(std::count_if(
      slices.begin(), slices.end(), [](const Slice& slice) { return slice.channel == 0; }));
  for (std::size_t i = 0; i < slices.size(); ++i) {
    header.slice = static_cast<std::uint32_t>(i);
    take(MessageOf(header, slices[i], phantom, frame_rows, encoded));
  }
}

}  // namespace geomx
