package drivetrain.kafka;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Paths;
import java.util.zip.CRC32;
import net.jpountz.lz4.LZ4Factory;
import net.jpountz.lz4.LZ4SafeDecompressor;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.compression.AbstractCompressionCodec;
import org.apache.arrow.vector.compression.CompressionCodec;
import org.apache.arrow.vector.compression.CompressionUtil;
import org.apache.arrow.vector.compression.NoCompressionCodec;
import org.apache.arrow.vector.ipc.ArrowFileReader;
import org.apache.arrow.vector.util.ByteArrayReadableSeekableByteChannel;
import org.apache.spark.sql.util.ArrowUtils;

/**
 * A segment, verified as a whole before a message of it is used, and read one record batch at a time.
 *
 * <p>Arrow's own codec for LZ4 is written in Java and many times slower than the library that Spark brings. That
 * library takes no blocks which refer to the block before, as Python writes them: those are decoded here.
 */
public class MessageFile {

  /** The file is missing, or not as it was written. */
  public static class Damaged extends IOException {
    public Damaged(String path) {
      super(path);
    }
  }

  private final BufferAllocator allocator;

  /** Its record batches; close this object, which closes the reader. */
  public final ArrowFileReader reader;

  public MessageFile(String path, long bytes, long crc32) throws IOException {
    byte[] content;
    try {
      content = Files.readAllBytes(Paths.get(path, new String[0]));
    } catch (NoSuchFileException error) {
      throw new Damaged(path);
    }
    CRC32 checksum = new CRC32();
    checksum.update(content, 0, content.length);
    if (content.length != bytes || checksum.getValue() != crc32) {
      throw new Damaged(path);
    }
    allocator = ArrowUtils.rootAllocator().newChildAllocator("messages", 0L, Long.MAX_VALUE);
    reader = new ArrowFileReader(new ByteArrayReadableSeekableByteChannel(content), allocator, new Codecs());
  }

  public void close() throws IOException {
    reader.close();
    allocator.close();
  }

  /** Makes the codec for a file. */
  public static class Codecs implements CompressionCodec.Factory {
    public CompressionCodec createCodec(CompressionUtil.CodecType type) {
      return type == CompressionUtil.CodecType.LZ4_FRAME ? new Lz4() : NoCompressionCodec.INSTANCE;
    }

    public CompressionCodec createCodec(CompressionUtil.CodecType type, int level) {
      return createCodec(type);
    }
  }

  /** Reads frames of LZ4. Their checksums are passed over: the file has its own. */
  public static class Lz4 extends AbstractCompressionCodec {
    private static final int LENGTH_BYTES = 8; // Arrow's own, before the frame
    private static final int MAGIC_BYTES = 4;
    private static final int INDEPENDENT = 0x20;
    private static final int BLOCK_CHECKSUMS = 0x10;
    private static final int CONTENT_SIZE = 0x08;
    private static final int DICTIONARY = 0x01;
    private static final int NOT_COMPRESSED = 1 << 31;

    private final LZ4SafeDecompressor library = LZ4Factory.fastestInstance().safeDecompressor();

    public CompressionUtil.CodecType getCodecType() {
      return CompressionUtil.CodecType.LZ4_FRAME;
    }

    protected ArrowBuf doCompress(BufferAllocator allocator, ArrowBuf given) {
      throw new UnsupportedOperationException("messages are only read here");
    }

    protected ArrowBuf doDecompress(BufferAllocator allocator, ArrowBuf packed) {
      byte[] from = new byte[(int) packed.writerIndex()];
      packed.getBytes(0L, from);
      ByteBuffer frame = ByteBuffer.wrap(from).order(ByteOrder.LITTLE_ENDIAN);
      byte[] to = new byte[(int) frame.getLong(0)];
      int flags = frame.get(LENGTH_BYTES + MAGIC_BYTES);
      boolean alone = (flags & INDEPENDENT) != 0;
      int after = (flags & BLOCK_CHECKSUMS) != 0 ? 4 : 0;
      int at = LENGTH_BYTES + MAGIC_BYTES + 3; // flags, sizes, and the header's checksum
      at += ((flags & CONTENT_SIZE) != 0 ? 8 : 0) + ((flags & DICTIONARY) != 0 ? 4 : 0);
      int made = 0;
      for (int head = frame.getInt(at); head != 0; head = frame.getInt(at)) {
        int size = head & ~NOT_COMPRESSED;
        at += 4;
        if (head < 0) {
          System.arraycopy(from, at, to, made, size);
          made += size;
        } else if (alone) {
          made += library.decompress(from, at, size, to, made);
        } else {
          made = decode(from, at, at + size, to, made);
        }
        at += size + after;
      }
      ArrowBuf result = allocator.buffer((long) to.length);
      result.setBytes(0L, to);
      result.writerIndex((long) made);
      return result;
    }

    /** Decodes a block that may refer to what was made before `made`; returns what is made after it. */
    private static int decode(byte[] from, int at, int end, byte[] to, int made) {
      while (true) {
        int token = from[at++] & 0xFF;
        int length = token >>> 4;
        if (length == 15) {
          int more = 255;
          while (more == 255) {
            more = from[at++] & 0xFF;
            length += more;
          }
        }
        System.arraycopy(from, at, to, made, length);
        at += length;
        made += length;
        if (at >= end) {
          return made; // the last sequence has no match
        }
        int back = (from[at] & 0xFF) | (from[at + 1] & 0xFF) << 8;
        at += 2;
        length = token & 15;
        if (length == 15) {
          int more = 255;
          while (more == 255) {
            more = from[at++] & 0xFF;
            length += more;
          }
        }
        length += 4;
        if (back >= length) {
          System.arraycopy(to, made - back, to, made, length);
          made += length;
        } else { // it repeats what it makes
          for (int stop = made + length; made < stop; made++) {
            to[made] = to[made - back];
          }
        }
      }
    }
  }
}
