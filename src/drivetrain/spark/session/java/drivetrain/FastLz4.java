package drivetrain;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import net.jpountz.lz4.LZ4Compressor;
import net.jpountz.lz4.LZ4Factory;
import net.jpountz.xxhash.XXHashFactory;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.compression.AbstractCompressionCodec;
import org.apache.arrow.vector.compression.CompressionCodec;
import org.apache.arrow.vector.compression.CompressionUtil;
import org.apache.arrow.vector.compression.NoCompressionCodec;

/**
 * Compresses Arrow's buffers as frames of LZ4, by native code: Arrow's own class does it in Java, tens of times
 * slower. Blocks are independent and of at most 4 MiB; neither blocks nor frames have checksums, since a segment has.
 */
public class FastLz4 extends AbstractCompressionCodec {

  /** Makes the codec for a file. */
  public static class Codecs implements CompressionCodec.Factory {
    public CompressionCodec createCodec(CompressionUtil.CodecType type) {
      return type == CompressionUtil.CodecType.LZ4_FRAME ? new FastLz4() : NoCompressionCodec.INSTANCE;
    }

    public CompressionCodec createCodec(CompressionUtil.CodecType type, int level) {
      return createCodec(type);
    }
  }

  private static final int LENGTH_BYTES = 8; // Arrow's own, before the frame
  private static final int MAGIC = 0x184D2204;
  private static final byte INDEPENDENT_BLOCKS = 0x60; // version 1 of the format
  private static final byte BLOCKS_OF_4_MIB = 0x70;
  private static final int BLOCK_BYTES = 4 << 20;
  private static final int NOT_COMPRESSED = 1 << 31;

  private final LZ4Compressor compressor = LZ4Factory.fastestInstance().fastCompressor();

  public CompressionUtil.CodecType getCodecType() {
    return CompressionUtil.CodecType.LZ4_FRAME;
  }

  /** A buffer without bytes stays one: readers in C++ do not take a length of zero before no frame. */
  public ArrowBuf compress(BufferAllocator allocator, ArrowBuf given) {
    if (given.writerIndex() == 0) {
      given.close();
      return allocator.getEmpty();
    }
    return super.compress(allocator, given);
  }

  protected ArrowBuf doCompress(BufferAllocator allocator, ArrowBuf given) {
    long size = given.writerIndex();
    long blocks = (size + BLOCK_BYTES - 1) / BLOCK_BYTES;
    long most = LENGTH_BYTES + 7 + 4 + blocks * (4 + compressor.maxCompressedLength(BLOCK_BYTES));
    if (blocks == 1) {
      most = LENGTH_BYTES + 7 + 4 + 4 + compressor.maxCompressedLength((int) size);
    }
    ArrowBuf made = allocator.buffer(most);
    ByteBuffer target = made.nioBuffer(0, (int) most).order(ByteOrder.LITTLE_ENDIAN);
    target.position(LENGTH_BYTES);
    target.putInt(MAGIC).put(INDEPENDENT_BLOCKS).put(BLOCKS_OF_4_MIB).put(HEADER_HASH);
    for (long at = 0; at < size; at += BLOCK_BYTES) {
      int length = (int) Math.min(BLOCK_BYTES, size - at);
      ByteBuffer source = given.nioBuffer(at, length);
      int head = target.position();
      int packed = compressor.compress(source, 0, length, target, head + 4, target.limit() - head - 4);
      if (packed < length) {
        target.putInt(packed);
        target.position(head + 4 + packed);
      } else {
        target.putInt(length | NOT_COMPRESSED);
        target.put(source);
      }
    }
    target.putInt(0);
    made.writerIndex(target.position());
    return made;
  }

  private static final byte HEADER_HASH =
      (byte)
          (XXHashFactory.fastestInstance()
                  .hash32()
                  .hash(new byte[] {INDEPENDENT_BLOCKS, BLOCKS_OF_4_MIB}, 0, 2, 0)
              >> 8);

  protected ArrowBuf doDecompress(BufferAllocator allocator, ArrowBuf packed) {
    throw new UnsupportedOperationException("segments are read by Python");
  }
}
