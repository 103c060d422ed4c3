"""The scripts that Redis runs: taking over a sink, and publishing a batch.

The problem: a batch must be there as a whole or not at all, once, and only by the process that owns the sink.
A transaction of Redis continues after a command that fails.

The design: a script is atomic, and reads before it writes. It compares the sink's mark with what the process
knows, checks the type of every key, and only then writes the rows and the mark. The mark is a hash:

    token   the state that publishes: those of another state are not our own
    epoch   grows whenever a process takes over; an older process is refused
    batch   the last published batch
    rows    how many rows have been published in total

Redis refuses a script's first write if it has no memory, no disk, or no replica, and none after it. So the
first row decides, and the mark is written last.

Called by `redis_writer`. Source: Redis's manual on scripts and their effects.
"""

from __future__ import annotations

from typing import Final

TAKE_OVER: Final = """
local mark = redis.call('HMGET', KEYS[1], 'token', 'epoch', 'batch', 'rows')
if ARGV[4] == 'stream' and mark[1] and mark[1] ~= ARGV[1] and tonumber(mark[4] or 0) > 0 then
    return {mark[1], 0, mark[3] or '', mark[4]}
end
local epoch = math.max(tonumber(mark[2] or 0), tonumber(ARGV[2])) + 1
redis.call('HSET', KEYS[1], 'epoch', epoch)
if mark[1] ~= ARGV[1] then
    redis.call('HSET', KEYS[1], 'token', ARGV[1], 'batch', mark[1] and ARGV[3] or -1, 'rows', 0)
end
return {mark[1] or '', epoch, mark[3] or '', mark[4] or '0'}
"""
"""KEYS: the mark. ARGV: our token, the newest epoch and the last batch that we know, the kind of values.

Returns token, the new epoch, batch and rows; of the mark before us, except for the epoch. A mark of another
state has replaced ours, not the rows, so it gets our batch. The epoch is 0, and nothing has changed, if a
stream has entries of another state."""

MOVE_ON: Final = """
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'batch', ARGV[2])
return 1
"""
"""KEYS: the mark. ARGV: our epoch, the batch up to which everything counts as published."""

PUBLISH: Final = """
local mark = redis.call('HMGET', KEYS[1], 'token', 'epoch', 'batch')
local token, epoch, previous, batch, kind = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local stream, limit, expire = ARGV[6], ARGV[7], ARGV[8]
if mark[1] and mark[1] ~= token then return {'foreign', mark[1]} end
if mark[2] and tonumber(mark[2]) > tonumber(epoch) then return {'fenced', mark[2]} end
if mark[2] ~= epoch or mark[3] ~= previous then
    if mark[2] == epoch and mark[3] == batch then return {'done', batch} end
    return {'lost', mark[3] or ''}
end
local chunks, rows = {}, 0
local wanted = kind == 'json' and 'string' or kind
for i = 9, #ARGV do
    local chunk = cmsgpack.unpack(ARGV[i])
    if kind ~= 'stream' then
        for _, row in ipairs(chunk) do
            local found = redis.call('TYPE', row[1]).ok
            if found ~= 'none' and found ~= wanted then return {'type', row[1], found} end
        end
    end
    chunks[#chunks + 1] = chunk
end
if kind == 'stream' then
    local found = redis.call('TYPE', stream).ok
    if found ~= 'none' and found ~= 'stream' then return {'type', stream, found} end
end
for _, chunk in ipairs(chunks) do
    for _, row in ipairs(chunk) do
        if kind == 'hash' then
            redis.call('HSET', row[1], unpack(row[2]))
            if #row[3] > 0 then redis.call('HDEL', row[1], unpack(row[3])) end
            if expire ~= '0' then redis.call('PEXPIRE', row[1], expire) end
        elseif kind == 'json' then
            if expire ~= '0' then
                redis.call('SET', row[1], row[2], 'PX', expire)
            else
                redis.call('SET', row[1], row[2])
            end
        elseif limit ~= '0' then
            redis.call('XADD', stream, 'MAXLEN', '~', limit, '*', unpack(row))
        else
            redis.call('XADD', stream, '*', unpack(row))
        end
        rows = rows + 1
    end
end
redis.call('HSET', KEYS[1], 'batch', batch)
redis.call('HINCRBY', KEYS[1], 'rows', rows)
return {'published', rows}
"""
"""KEYS: the mark. ARGV: token, epoch, the batch before, the batch, the kind of values, the stream, its limit,
milliseconds until rows expire (0: never), then chunks of rows in MessagePack:

    hash     key, names and values in turn, names of columns that are null
    json     key, text
    stream   names and values in turn
"""
