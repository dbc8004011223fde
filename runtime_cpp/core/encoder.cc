#include "core/encoder.h"

#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/plugin_failure.h"

namespace geomx {
namespace {

// A part that cannot be cut travels in one message.
std::string TooLarge(const Message& message) {
  return "a codec makes " + std::to_string(message.payload.size() >> 20) + " MiB of " +
         std::to_string(message.header.shard_elements) + " elements of key " +
         std::to_string(message.header.key) +
         " that cannot be cut, and a message carries at most " +
         std::to_string(kMaxPayloadBytes >> 20) +
         " MiB: cut the tensor into shards (a partitioner does that), or choose another codec";
}

std::vector<Slice> IntoFrames(std::span<const Slice> slices, std::uint32_t frame_rows) {
  std::vector<Slice> frames;
  for (Slice rest : slices) {
    while (rest.rows > frame_rows) {
      Slice frame = rest;
      frame.rows = frame_rows;
      frames.push_back(frame);
      rest.first_row += frame.rows;
      rest.rows -= frame.rows;
    }
    frames.push_back(rest);
  }
  return frames;
}

// Moves the cuts of slicers, which know nothing of chunks, up to where the next chunk begins. Slices
// that lose all their rows are left out.
void BetweenChunks(std::uint64_t granule, std::uint64_t rows, std::vector<Slice>& slices) {
  const auto moved = [=](std::uint64_t row) {
    return static_cast<std::uint32_t>(std::min(rows, (row + granule - 1) / granule * granule));
  };
  for (Slice& slice : slices) {
    const std::uint32_t end = moved(std::uint64_t{slice.first_row} + slice.rows);
    slice.first_row = moved(slice.first_row);
    slice.rows = end - slice.first_row;
  }
  if (rows > 0) std::erase_if(slices, [](const Slice& slice) { return slice.rows == 0; });
}

bool Reliable(const Slice& slice) { return slice.channel == 0; }

}  // namespace

void Encoder::Encode(Pipeline& pipeline, const ShardValue& value, Encoding& encoding) {
  const Header& header = value.header;
  const Pipeline* before = std::exchange(encoding.pipeline, &pipeline);
  if (before != nullptr && before->sums == pipeline.sums) {
    const bool alike = pipeline.chain.Stateless() && before->link->codecs == pipeline.link->codecs;
    if (pipeline.sums || alike) return;
  }
  encoding.pending = false;
  if (value.phantom() && pipeline.chain.Dense()) {
    if (!dense_) dense_ = std::make_shared<Parts>(Parts::Dense(0, nullptr, nullptr));
    encoding.parts = dense_;
    dense_->elements = dense_->rows = header.shard_elements;
    dense_->round = header.round;
    return;
  }
  if (pipeline.sums) {  // encoded already
    encoding.parts = std::make_shared<Parts>(
        pipeline.chain.View(header.shard_elements, header.turn(), value.data, value.owner));
    return;
  }
  if (pipeline.chain.Dense()) return Plain(value, encoding);
  encoding.parts =
      std::make_shared<Parts>(Parts::Dense(header.shard_elements, value.data, value.owner));
  encoding.parts->round = header.round;
  encoding.parts->last = header.turn().last;
  state_.work.encode.Add(std::uint64_t{header.shard_elements} * sizeof(float));
  if (value.phantom()) {
    *encoding.parts = pipeline.chain.Layout(header.shard_elements, header.turn());
    return;
  }
  kernels::Device* device = state_.device.For(header.shard_elements);
  if (device == nullptr || !pipeline.chain.StartsOnDevices()) {
    return pipeline.chain.Encode(*encoding.parts);
  }
  const std::size_t done = pipeline.chain.EncodeThrough(*device, *encoding.parts);
  encoding.pending = true;
  state_.device.Then([&chain = pipeline.chain, parts = encoding.parts, done](Time) {
    chain.EncodeFrom(done, *parts);
  });
}

void Encoder::Plain(const ShardValue& value, Encoding& encoding) {
  const Header& header = value.header;
  if (!plain_ || plain_.use_count() > 1) plain_ = std::make_shared<Parts>(Parts::Dense(0, nullptr, nullptr));
  plain_->elements = plain_->rows = header.shard_elements;
  plain_->round = header.round;
  plain_->last = header.turn().last;
  plain_->parts.front().data = reinterpret_cast<const std::byte*>(value.data);
  plain_->owners.assign(value.owner ? 1 : 0, value.owner);
  // The owner must not be kept until the next value: a framework may wait for it before it goes on.
  encoding.parts = {plain_.get(), [plain = plain_](Parts* parts) { parts->owners.clear(); }};
}

// The most rows that fit into a frame.
std::uint64_t Encoder::FrameRows(const Parts& encoded) const {
  return encoded.RowsIn(state_.config.frame_bytes);
}

// How many frames of a slice leave as one message. Where no other message comes between the frames
// of a transfer, its last byte arrives at the same time either way. Receivers begin their work one
// message later, so a transfer still has at least `kPieces` messages. Not used where frames repeat
// a whole part, or where slicers have cut the shard.
std::uint64_t Encoder::Bundle(const Pipeline& pipeline, const Parts& encoded,
                              std::uint64_t frame_rows) const {
  constexpr std::uint64_t kPieces = 256;
  if (state_.config.bundle <= 1 || !pipeline.slicers.empty()) return 1;
  const auto whole = [](const Part& part) { return part.whole; };
  if (std::any_of(encoded.parts.begin(), encoded.parts.end(), whole)) return 1;
  const std::uint64_t frames = encoded.rows / frame_rows;
  return std::clamp<std::uint64_t>(frames / kPieces, 1, state_.config.bundle);
}

const std::vector<Slice>& Encoder::Slices(Pipeline& pipeline, const Header& header,
                                          const Parts& encoded, std::uint64_t frame_rows) {
  const ShardInfo shard = header.shard_info();
  std::vector<Slice>& slices = slices_;
  slices.assign(1, {.first_row = 0,
                    .rows = static_cast<std::uint32_t>(encoded.rows),
                    .priority = shard.priority});
  const bool slicers = (header.flags & kPlain) == 0 && !pipeline.slicers.empty();
  if (!slicers && encoded.rows <= frame_rows) return slices;  // one frame, as most values are
  const bool survives_holes = pipeline.chain.SurvivesHoles();
  if (slicers) {
    const SliceContext context{shard, header.round, encoded, survives_holes, state_.losses.Ratio()};
    for (const auto& slicer : pipeline.slicers) slicer->Cut(context, slices);
  }
  const std::uint64_t granule = encoded.Granule();
  if (granule > 8) BetweenChunks(granule, encoded.rows, slices);
  for (const Slice& slice : slices) {
    if (slice.first_row % 8 != 0 && granule > 1) {
      throw std::runtime_error("a slicer cut packed rows at row " +
                               std::to_string(slice.first_row) + ", no multiple of 8");
    }
  }
  const std::uint64_t most = frame_rows * Bundle(pipeline, encoded, frame_rows);
  const auto too_long = [&](const Slice& slice) { return slice.rows > most; };
  if (std::any_of(slices.begin(), slices.end(), too_long)) {
    slices = IntoFrames(slices, static_cast<std::uint32_t>(most));
  }
  // Without a reliable slice the receiver would never learn of the round.
  if (!survives_holes || std::none_of(slices.begin(), slices.end(), Reliable)) {
    for (Slice& slice : slices) {
      slice.channel = 0;
      if (survives_holes) break;
    }
  }
  return slices;
}

Message Encoder::MessageOf(const Header& header, const Slice& slice, bool phantom,
                           std::uint64_t frame_rows,
                           const std::shared_ptr<Parts>& encoded) const {
  Message message{.header = header, .payload = {}};
  if (state_.config.bundle > 1 && slice.rows > frame_rows) {
    message.frames = static_cast<std::uint32_t>((slice.rows + frame_rows - 1) / frame_rows);
  }
  message.header.first_row = slice.first_row;
  message.header.rows = slice.rows;
  message.header.channel = slice.channel;
  if ((header.flags & kPlain) == 0) message.header.priority = slice.priority;
  if (phantom) {
    message.payload = Payload::Phantom(encoded->SliceBytes(slice.first_row, slice.rows));
  } else {
    const auto piece = [&](const Part& part) {
      const std::uint64_t start = part.whole ? 0 : part.BytesFor(slice.first_row);
      return Bytes{part.data + start, part.BytesFor(slice.rows)};
    };
    if (encoded == plain_) {
      const auto owner = encoded->owners.empty() ? nullptr : encoded->owners.front();
      message.payload = Payload::View(piece(encoded->parts.front()), owner);
    } else {
      std::vector<Bytes> pieces;
      for (const Part& part : encoded->parts) {
        if (part.IsIn(slice.first_row)) pieces.push_back(piece(part));
      }
      message.payload = Payload::View(std::move(pieces), encoded);
    }
  }
  if (message.payload.size() > std::uint64_t{message.frames} * kMaxPayloadBytes) {
    throw PluginFailure(TooLarge(message));
  }
  return message;
}

std::vector<Message> Encoder::Messages(Pipeline& pipeline, const Header& header, bool phantom,
                                       const std::shared_ptr<Parts>& encoded) {
  std::vector<Message> messages;
  Cut(pipeline, header, phantom, encoded,
      [&](Message&& message) { messages.push_back(std::move(message)); });
  return messages;
}

}  // namespace geomx
