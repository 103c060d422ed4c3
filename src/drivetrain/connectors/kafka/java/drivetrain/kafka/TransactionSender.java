package drivetrain.kafka;

import java.lang.ref.Cleaner;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Properties;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.IntVector;
import org.apache.arrow.vector.VarBinaryVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.complex.ListVector;
import org.apache.arrow.vector.complex.StructVector;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.TransactionAbortedException;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's transactional producer, and the loop that gives it the messages of segments.
 *
 * <p>Which call comes when, and what follows from an error, is decided by the caller, in Python: see
 * `transactional_producer`. The producer is closed when nobody has this object any more.
 *
 * <p>It is compiled by Janino, which ignores type parameters.
 */
public class TransactionSender {

  private static final int KEY_BYTES = 64;
  private static final Cleaner LEFT = Cleaner.create();

  private KafkaProducer producer;
  private String topic;
  private final HashMap partitions = new HashMap();
  private volatile String refusal;
  private boolean refusalSays;

  /** Makes the producer; `topic` is that of messages which name none, and may be null. */
  public void connect(Properties settings, String topic) {
    this.producer = new KafkaProducer(settings, new ByteArraySerializer(), new ByteArraySerializer());
    this.topic = topic;
    LEFT.register(this, new Closing(producer));
  }

  public void init() {
    producer.initTransactions();
  }

  public void begin() {
    refusal = null;
    partitions.clear();
    producer.beginTransaction();
  }

  /**
   * Commits, with the transaction, an offset and its metadata to a consumer group.
   *
   * <p>All messages have arrived before, or been refused: a request that waits while another one finds out that
   * this producer is fenced would be forgotten by Kafka's client (3.9), and waited for in vain.
   */
  public void mark(String group, String topic, long offset, String metadata) {
    producer.flush();
    producer.sendOffsetsToTransaction(
        Collections.singletonMap(new TopicPartition(topic, 0), new OffsetAndMetadata(offset, metadata)),
        new ConsumerGroupMetadata(group));
  }

  public void commit() {
    producer.commitTransaction();
  }

  public void abort() {
    producer.abortTransaction();
  }

  /** Ends the connections without waiting; calls under way in other threads fail. */
  public void close() {
    producer.close(Duration.ZERO);
  }

  /** Sends the messages of a segment, in order, and returns their number. */
  public long send(String path, long bytes, long crc32) throws Exception {
    MessageFile file = new MessageFile(path, bytes, crc32);
    try {
      long sent = 0;
      VectorSchemaRoot root = file.reader.getVectorSchemaRoot();
      while (file.reader.loadNextBatch()) {
        send(root);
        sent += root.getRowCount();
      }
      return sent;
    } finally {
      file.close();
    }
  }

  private void send(VectorSchemaRoot root) {
    VarBinaryVector keys = (VarBinaryVector) root.getVector("key");
    VarBinaryVector values = (VarBinaryVector) root.getVector("value");
    VarCharVector topics = (VarCharVector) root.getVector("topic");
    IntVector places = (IntVector) root.getVector("partition");
    ListVector headers = (ListVector) root.getVector("headers");
    int rows = root.getRowCount();
    for (int row = 0; row < rows; row++) {
      byte[] key = keys.get(row);
      String to = topics == null || topics.isNull(row) ? topic : text(topics, row);
      Integer partition = places == null || places.isNull(row) ? null : Integer.valueOf(places.get(row));
      if (topics != null || partition != null) {
        requirePlace(to, partition, key);
      }
      List named = headers == null || headers.isNull(row) ? null : headers(headers, row, to, key);
      producer.send(
          new ProducerRecord(to, partition, (Long) null, key, values.get(row), named),
          new Sent(this, to, key));
    }
  }

  private List headers(ListVector headers, int row, String to, byte[] key) {
    StructVector pairs = (StructVector) headers.getDataVector();
    VarCharVector names = (VarCharVector) pairs.getChild("key");
    VarBinaryVector values = (VarBinaryVector) pairs.getChild("value");
    ArrayList made = new ArrayList();
    for (int at = headers.getElementStartIndex(row); at < headers.getElementEndIndex(row); at++) {
      if (pairs.isNull(at) || names.isNull(at)) {
        throw noted(new Unsendable("_HEADER", "a header has no name"), to, key);
      }
      made.add(new RecordHeader(text(names, at), values.get(at)));
    }
    return made;
  }

  private static String text(VarCharVector texts, int row) {
    return new String(texts.get(row), StandardCharsets.UTF_8);
  }

  /** Kafka's client would wait for a partition that does not exist until its time is over. */
  private void requirePlace(String to, Integer partition, byte[] key) {
    Integer known = (Integer) partitions.get(to);
    if (known == null) {
      known = Integer.valueOf(producer.partitionsFor(to).size());
      partitions.put(to, known);
    }
    if (partition != null && (partition.intValue() < 0 || partition.intValue() >= known.intValue())) {
      throw noted(new Unsendable("_UNKNOWN_PARTITION", "partition " + partition + " of " + known), to, key);
    }
  }

  /** The first message that was not accepted, as {@link #described} and its topic and key; or null. */
  public String refusal() {
    return refusal;
  }

  private Unsendable noted(Unsendable error, String to, byte[] key) {
    note(error, to, key);
    return error;
  }

  /** The messages beside one that a broker refused fail by another kind of error, which says nothing. */
  private synchronized void note(Throwable error, String to, byte[] key) {
    boolean says = error instanceof ApiException || error instanceof Unsendable;
    if (error instanceof TransactionAbortedException || (refusal != null && (!says || refusalSays))) {
      return;
    }
    int shown = key == null ? 0 : Math.min(key.length, KEY_BYTES);
    String start = key == null ? "" : new String(key, 0, shown, StandardCharsets.ISO_8859_1);
    refusal = described(error) + "\0" + to + "\0" + start;
    refusalSays = says;
  }

  /** An error as its name in Kafka's protocol, whether to call again, whether it passes, and its text. */
  public static String described(Throwable error) {
    Throwable cause = error;
    for (Throwable next = error; next != null; next = next.getCause()) {
      if (next instanceof ApiException || next instanceof Unsendable || next instanceof MessageFile.Damaged) {
        cause = next;
      }
    }
    String name = Errors.forException(cause).name();
    if (cause instanceof Unsendable) {
      name = ((Unsendable) cause).name;
    } else if (name.equals("UNKNOWN_SERVER_ERROR")) {
      name = cause.getClass().getSimpleName();
    }
    String text = cause.getMessage() == null ? cause.getClass().getSimpleName() : cause.getMessage();
    return name + "\0" + (error instanceof RetriableException) + "\0" + (cause instanceof RetriableException)
        + "\0" + text;
  }

  /** A message that cannot be sent. */
  public static class Unsendable extends RuntimeException {
    public final String name;

    public Unsendable(String name, String text) {
      super(text);
      this.name = name;
    }
  }

  /** What happens when the brokers have answered. */
  public static class Sent implements Callback {
    private final TransactionSender sender;
    private final String to;
    private final byte[] key;

    public Sent(TransactionSender sender, String to, byte[] key) {
      this.sender = sender;
      this.to = to;
      this.key = key;
    }

    public void onCompletion(RecordMetadata where, Exception error) {
      if (error != null) {
        sender.note(error, to, key);
      }
    }
  }

  /** Closes a producer that nobody has any more. */
  public static class Closing implements Runnable {
    private final KafkaProducer producer;

    public Closing(KafkaProducer producer) {
      this.producer = producer;
    }

    public void run() {
      producer.close(Duration.ZERO);
    }
  }
}
