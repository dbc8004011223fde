#include "core/sender.h"

#include <utility>

#include "core/device_value.h"
#include "kernels/sums.h"

namespace geomx {

void Sender::Send(std::span<const NodeId> targets, const ShardValue& value, Time now) {
  if (value.device != nullptr) {
    for (const NodeId target : targets) Fetch(target, value);
    return;
  }
  if (overlay_ && overlay_->Take(targets, value, now)) return;
  const Header& header = value.header;
  const ShardInfo shard = header.shard_info();
  Encoding encoding;
  for (const NodeId target : targets) {
    Pipeline& pipeline = flows_.Outgoing(FlowOf(target, header), shard);
    encoder_.Encode(pipeline, value, encoding);
    Peers::Neighbour& neighbour = state_.peers.Get(target);
    if (!encoding.pending) {
      Leave(neighbour, pipeline, header, value.phantom(), encoding.parts, now);
      continue;
    }
    state_.device.Then([this, &neighbour, &pipeline, header, parts = encoding.parts](Time at) {
      Leave(neighbour, pipeline, header, false, parts, at);
    });
  }
}

void Sender::Leave(Peers::Neighbour& target, Pipeline& pipeline, const Header& header,
                   bool phantom, const std::shared_ptr<Parts>& encoded, Time now) {
  DropStale(target, header);
  const std::uint32_t now_us = Micros(now);
  encoder_.Cut(pipeline, header, phantom, encoded, [&](Message&& message) {
    message.queued_us = now_us;
    state_.peers.Send(target, std::move(message));
  });
}

// The receiver would refuse best-effort slices of a round that it has closed.
void Sender::DropStale(Peers::Neighbour& target, const Header& header) {
  if (header.round < 2) return;
  state_.stats.dropped_slices += target.queue.DropStale(header.key, header.shard, header.round - 1);
}

void Sender::Pack(NodeId peer, ShardValue value, Buffer relayed, Time now, Packed then) {
  const Header& header = value.header;
  Pipeline& pipeline = flows_.Outgoing(FlowOf(peer, header), header.shard_info());
  const bool merge = !value.phantom() && !relayed.empty();
  const bool linear = pipeline.chain.Linear();  // others' contributions are encoded
  auto sum = std::make_shared<Buffer>(std::move(relayed));
  if (merge && !linear && !pipeline.chain.Absorb(*sum)) {
    for (std::size_t i = 0; i < sum->size(); ++i) (*sum)[i] += value.data[i];
    value.data = sum->data();
    value.owner = sum;
  }
  Encoding encoding;
  encoder_.Encode(pipeline, value, encoding);
  const auto pack = [this, &pipeline, header, phantom = value.phantom(), add = merge && linear, sum,
                     parts = encoding.parts, then = std::move(then)](Time at) {
    if (add) {
      const Buffer mine = CodecChain::Gather(*parts);
      const float* const terms[] = {mine.data()};
      kernels::Add(sum->data(), terms, 1, sum->size());
      *parts = pipeline.chain.View(header.shard_elements, header.turn(), sum->data(), sum);
    }
    std::vector<Message> messages = encoder_.Messages(pipeline, header, phantom, parts);
    for (Message& message : messages) message.queued_us = Micros(at);
    then(std::move(messages), at);
  };
  if (!encoding.pending) return pack(now);
  state_.device.Then(pack);
}

// ---- from a device ---------------------------------------------------------------------------

struct Sender::Departure {
  NodeId target;
  Header header;
  std::size_t encoded = 0;  // number of codecs applied
  bool cut = false;
  std::vector<Message> messages = {};  // whose rows have not arrived yet
};

void Sender::Fetch(NodeId target, const ShardValue& value) {
  const auto departure = std::make_shared<Departure>(target, value.header);
  Parts dense = Parts::Dense(value.header.shard_elements, value.data, value.owner);
  dense.round = value.header.round;
  dense.last = value.header.turn().last;
  const auto encode = [&](kernels::DeviceContext& device, Parts& parts) {
    if (overlay_) return;  // contributions are added on their way
    const Header& header = departure->header;
    CodecChain& chain = flows_.Outgoing(FlowOf(target, header), header.shard_info()).chain;
    if (!chain.Dense()) {
      state_.work.encode.Add(std::uint64_t{header.shard_elements} * sizeof(float));
    }
    departure->encoded = chain.EncodeOn(device, parts);
  };
  value.device->Fetch(std::move(dense), encode,
                      [this, departure](const std::shared_ptr<Parts>& parts, std::uint64_t rows,
                                        Time now) { Arrive(*departure, parts, rows, now); });
}

void Sender::Arrive(Departure& departure, const std::shared_ptr<Parts>& parts, std::uint64_t rows,
                    Time now) {
  const bool all = rows == parts->rows;
  const Header& header = departure.header;
  if (overlay_) {
    const auto* there = reinterpret_cast<const float*>(parts->Find("values")->data);
    if (all) Send({&departure.target, 1}, {header, there, parts}, now);
    return;
  }
  Pipeline& pipeline = flows_.Outgoing(FlowOf(departure.target, header), header.shard_info());
  // Remaining codecs and slicers need all rows.
  if (!all && (departure.encoded < pipeline.chain.size() || !pipeline.slicers.empty())) return;
  Peers::Neighbour& target = state_.peers.Get(departure.target);
  if (!departure.cut) {
    pipeline.chain.EncodeFrom(departure.encoded, *parts);
    departure.messages = encoder_.Messages(pipeline, header, false, parts);
    departure.cut = true;
    DropStale(target, header);
  }
  std::vector<Message> later;
  for (Message& message : departure.messages) {
    if (all || message.header.first_row + message.header.rows <= rows) {
      message.queued_us = Micros(now);
      state_.peers.Send(target, std::move(message));
    } else {
      later.push_back(std::move(message));
    }
  }
  departure.messages = std::move(later);
}

}  // namespace geomx
